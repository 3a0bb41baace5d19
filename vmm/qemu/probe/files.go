package probe

import (
	"os"

	"github.com/vmlet/vmlet/vmm"
)

// Files are those that the program's answers depend on: the program itself, and
// the folders of firmware descriptors.
func (q *Program) Files() []string {
	return append([]string{q.config.Binary}, q.config.FirmwareDirs...)
}

// AllFiles implements vmm.Portable. What a firmware's own files have in them is not QEMU's to say.
func (q *Program) AllFiles(info vmm.Info) []string { return append(q.Files(), info.Files...) }

// Forget makes the next Info ask the program, whatever it said before. It waits
// for one that is under way.
func (q *Program) Forget() {
	q.mu <- struct{}{}
	defer func() { <-q.mu }()
	q.known = nil
	if q.config.CacheFile == "" {
		return
	}
	if err := os.Remove(q.config.CacheFile); err != nil && !os.IsNotExist(err) {
		q.config.Log.Warn("what QEMU said earlier can't be removed", "file", q.config.CacheFile, "error", err)
	}
}
