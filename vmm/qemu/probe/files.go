package probe

import "os"

// Files are those that the program's answers hang on: the program itself, and
// the folders of firmware descriptors.
func (q *Program) Files() []string {
	return append([]string{q.config.Binary}, q.config.FirmwareDirs...)
}

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
