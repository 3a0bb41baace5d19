package prepare

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Caches and input/output of a disk, as the specification names them.
const (
	cacheNone      = "none"
	cacheWriteback = "writeback"
	ioNative       = "native"
)

// lookForDirect notes a file whose filesystem has no direct I/O, without which the VMM can't
// open it as it does by default. It comes after all that reads the file.
func (r *result) lookForDirect(f *os.File) {
	fd := f.Fd()
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(fd, unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil && r.buffered == "" {
		r.buffered = f.Name()
	}
}

// lookAt is lookForDirect for a file that was made.
func (r *result) lookAt(path string) error {
	f, err := openImage(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	r.lookForDirect(f)
	return nil
}

// cacheOf chooses how a disk is cached whose files can't all have direct I/O: all VMMs have
// writeback, and it keeps what none keeps of what the guest flushes. What the user has chosen
// is not overruled.
func cacheOf(d map[string]json.RawMessage, buffered string) (string, error) {
	var cache, io string
	_ = json.Unmarshal(d["cache"], &cache) // a fault of it is the agent's to report
	_ = json.Unmarshal(d["io"], &io)
	var shareable bool
	_ = json.Unmarshal(d["shareable"], &shareable)
	switch {
	case buffered == "" || cache != "" && cache != cacheNone:
		return cache, nil
	case shareable:
		return "", fmt.Errorf("%s: its filesystem has no direct I/O, which a shareable disk needs: use a claim with volumeMode Block", buffered)
	case cache == cacheNone:
		return "", fmt.Errorf("%s: its filesystem has no direct I/O: leave out cache, or use writethrough", buffered)
	case io == ioNative:
		return "", fmt.Errorf("%s: its filesystem has no direct I/O, which io native needs: leave out io", buffered)
	}
	return cacheWriteback, nil
}
