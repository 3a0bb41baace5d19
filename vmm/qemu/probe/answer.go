package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// answer is what a program said, and what it depended on.
type answer struct {
	Key     string       `json:"key"`
	Version string       `json:"version"`
	Details qemu.Details `json:"details"`
	// Files that the program was found to be made of, and their fingerprint.
	Files    []string `json:"files,omitempty"`
	FilesKey string   `json:"filesKey"`

	// passing: an accelerator failed that may work in a moment; at: when.
	passing bool
	at      time.Time
}

// answerFormat is a part of the key: an answer that was kept by another version
// of vmlet, which asked otherwise, is not read.
const answerFormat = 4

// passingBelief is how long it is believed that an accelerator failed which may
// work in a moment: each start of a VM would wait for the program again.
const passingBelief = 10 * time.Second

// maxAnswer bounds the file that is read back, in bytes.
const maxAnswer = 4 << 20

// key changes whenever the answer might.
func (q *Program) key() (string, error) {
	parts := []string{fmt.Sprint("format ", answerFormat)}
	info, err := os.Stat(q.config.Binary)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("qemu is not installed: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("QEMU: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("QEMU: %s is not a file", q.config.Binary)
	}
	parts = append(parts, q.config.Binary+" "+fingerprint.Of(q.config.Binary, ""))
	for _, h := range q.config.Hypervisors {
		part := h.Name() + " " + h.Accelerator()
		if device := h.Device(); device != "" {
			part += " " + device + " " + fingerprint.Of(device, "")
		}
		parts = append(parts, part)
	}
	for _, dir := range q.config.FirmwareDirs {
		parts = append(parts, dir+" "+fingerprint.Of(dir, descriptorFiles))
	}
	if q.config.HostKey != nil {
		parts = append(parts, "host "+q.config.HostKey())
	}
	return strings.Join(parts, "; "), nil
}

// holds says whether the program would still say so, as far as is known
// without asking it.
func (a *answer) holds(key string) bool {
	return a != nil && a.Key == key && a.FilesKey == fingerprint.All(a.Files) &&
		(!a.passing || time.Since(a.at) < passingBelief)
}

// load returns what was kept under this key, or nil. A file that can't be read
// is as good as none.
func (q *Program) load(key string) *answer {
	if q.config.CacheFile == "" {
		return nil
	}
	a, err := readAnswer(q.config.CacheFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			q.config.Log.Warn("what QEMU said earlier can't be read: asking again", "file", q.config.CacheFile, "error", err)
		}
		return nil
	}
	if !a.holds(key) {
		return nil
	}
	return a
}

func readAnswer(path string) (*answer, error) {
	text, err := atomicfile.ReadOwn(path, maxAnswer)
	if err != nil {
		return nil, err
	}
	a := new(answer)
	return a, json.Unmarshal(text, a)
}

// store keeps an answer that lasts. That it can't is no reason not to go on.
func (q *Program) store(a *answer) {
	if q.config.CacheFile == "" || a.passing {
		return
	}
	if err := writeAnswer(q.config.CacheFile, a); err != nil {
		q.config.Log.Warn("what QEMU said can't be kept: it will be asked at every start", "file", q.config.CacheFile, "error", err)
	}
}

func writeAnswer(path string, a *answer) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return atomicfile.Replace(path, text, 0o600)
}
