package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/vmlet/vmlet/internal/atomicfile"
)

// answer is what a program said, and what it depended on.
type answer struct {
	Key     string  `json:"key"`
	Version string  `json:"version"`
	Details Details `json:"details"`
}

// answerFormat is a part of the key: an answer that was kept by another version
// of vmlet, which asked otherwise, is not read.
const answerFormat = 2

// maxAnswer bounds the file that is read back, in bytes.
const maxAnswer = 4 << 20

// key changes whenever the answer might.
func (q *QEMU) key() (string, error) {
	parts := []string{fmt.Sprint("format ", answerFormat)}
	info, err := os.Stat(q.config.Binary)
	if err != nil {
		return "", fmt.Errorf("QEMU: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("QEMU: %s is not a file", q.config.Binary)
	}
	parts = append(parts, fingerprint(q.config.Binary))
	for _, h := range q.config.Hypervisors {
		part := h.Name() + " " + h.Accelerator()
		if device := h.Device(); device != "" {
			part += " " + fingerprint(device)
		}
		parts = append(parts, part)
	}
	for _, dir := range q.config.FirmwareDirs {
		parts = append(parts, fingerprint(dir))
	}
	if q.config.HostKey != nil {
		parts = append(parts, "host "+q.config.HostKey())
	}
	return strings.Join(parts, "; "), nil
}

// fingerprint tells two files of one name apart. A device node's dates change
// with every use and its mode with every VM that is given access to it, so that
// of a device counts only what it is and whose.
func fingerprint(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path + " is not there"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return path
	}
	if stat.Mode&syscall.S_IFMT == syscall.S_IFCHR {
		return fmt.Sprintf("%s device %d owner %d:%d", path, stat.Rdev, stat.Uid, stat.Gid)
	}
	return fmt.Sprintf("%s file %d:%d size %d mtime %d", path, stat.Dev, stat.Ino, info.Size(), info.ModTime().UnixNano())
}

// load returns what was kept under this key, or nil. A file that can't be read
// is as good as none.
func (q *QEMU) load(key string) *answer {
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
	if a.Key != key {
		return nil
	}
	return a
}

func readAnswer(path string) (*answer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAnswer))
	if err != nil {
		return nil, err
	}
	a := new(answer)
	return a, json.Unmarshal(text, a)
}

// store keeps an answer. That it can't is no reason not to go on.
func (q *QEMU) store(a *answer) {
	if q.config.CacheFile == "" {
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
