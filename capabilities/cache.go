package capabilities

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"google.golang.org/protobuf/proto"
)

// maxKept bounds the file of kept answers, in bytes. Two VMMs with some hundred
// CPU models each make half a MiB.
const maxKept = 8 << 20

// kept are answers of earlier, by the part of the document that they are of.
// One collection at a time uses it.
type kept struct {
	path string // of the file; empty: they are kept in memory alone
	log  *slog.Logger

	mu      sync.Mutex
	old     map[string]answer // those of the collection before
	current map[string]answer // those of the present one
	changed bool
}

// answer is one part, and what it depended on.
type answer struct {
	Key string `json:"key"`
	// Files that it was found to depend on when it was asked, and their fingerprint.
	Files    []string `json:"files,omitempty"`
	FilesKey string   `json:"filesKey,omitempty"`
	// Message is a protobuf message: to read one takes a tenth of ProtoJSON's time.
	Message []byte `json:"message"`
	// Sum of all of it: a damaged message may still be read as another.
	Sum string `json:"sum"`
}

func (a answer) sum(name string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q %q ", name, a.Key, a.Files, a.FilesKey)
	sum.Write(a.Message)
	return hex.EncodeToString(sum.Sum(nil))
}

// holds says whether this is what was answered under the key, of files that are
// still the same.
func (a answer) holds(name, key string) bool {
	return a.Key == key && a.Sum == a.sum(name) && a.sameFiles()
}

func (a answer) sameFiles() bool {
	return len(a.Files) == 0 || a.FilesKey == fingerprint.All(a.Files)
}

// openKept reads the file. One that is damaged, not this user's, or too large is
// as good as none: all is asked again.
func openKept(path string, log *slog.Logger) *kept {
	k := &kept{path: path, log: log, current: map[string]answer{}}
	if path == "" {
		return k
	}
	content, err := atomicfile.ReadOwn(path, maxKept)
	if err == nil {
		err = json.Unmarshal(content, &k.old)
	}
	if err != nil {
		k.old = nil
		if !errors.Is(err, fs.ErrNotExist) {
			log.Info("what was found out earlier can't be read: asking again", "file", path, "error", err)
		}
	}
	return k
}

// get fills in the message that is kept under this name and key; false if there
// is none, or it is damaged, or has fields of another version.
func (k *kept) get(name, key string, into proto.Message) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.old[name]
	if !ok || !a.holds(name, key) {
		return false
	}
	if err := proto.Unmarshal(a.Message, into); err != nil || len(into.ProtoReflect().GetUnknown()) > 0 {
		proto.Reset(into)
		return false
	}
	k.current[name] = a
	return true
}

// put keeps a message, and which files it depends on beside what is in the key.
func (k *kept) put(name, key string, m proto.Message, files []string) {
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		k.log.Warn("an answer can't be kept", "part", name, "error", err)
		return
	}
	a := answer{Key: key, Message: message, Files: files}
	if len(files) > 0 {
		a.FilesKey = fingerprint.All(files)
	}
	a.Sum = a.sum(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current[name] = a
	k.changed = true
}

// files are all that the answers of the last collection were found to depend on.
func (k *kept) files() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, a := range k.old {
		all = append(all, a.Files...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// sameFiles says whether all of those are as they were when they were found.
func (k *kept) sameFiles() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.old {
		if !a.sameFiles() {
			return false
		}
	}
	return true
}

// done ends a collection: its answers are those of earlier from now on. They are
// written if there is something new. That they can't is no reason not to go on.
func (k *kept) done() {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := k.changed
	k.old, k.current, k.changed = k.current, map[string]answer{}, false
	if k.path == "" || !changed {
		return
	}
	content, err := json.Marshal(k.old)
	if err == nil {
		// One that a power cut leaves damaged is asked for again.
		err = atomicfile.Replace(k.path, content, 0o600)
	}
	if err != nil {
		k.log.Warn("what was found out can't be kept: it will be asked again", "file", k.path, "error", err)
	}
}
