package memory

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// directFile does direct I/O until the filesystem refuses it, and goes on
// through the page cache from then. It may be used concurrently.
type directFile struct{ *os.File }

// openDirect opens with O_DIRECT if the filesystem knows it. The flag is set
// afterwards: an open(2) that creates and then refuses would leave the file.
func openDirect(d *folder, name string, flags int) (directFile, error) {
	f, err := d.open(name, flags)
	if err != nil {
		return directFile{}, err
	}
	direct := directFile{f}
	direct.tryDirect()
	return direct, nil
}

// tryDirect turns direct I/O on; where it is refused the file stays buffered.
func (f directFile) tryDirect() { _ = setDirect(f.File, true) }

// direct reports whether direct I/O is on.
func (f directFile) direct() bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_DIRECT != 0
}

func (f directFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if f.refused(err) {
		n, err = f.File.ReadAt(b, off)
	}
	return n, err
}

func (f directFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	if f.refused(err) {
		n, err = f.File.WriteAt(b, off)
	}
	return n, err
}

// refused reports whether err is about direct I/O, which is then off, so that
// the same call may be tried again.
func (f directFile) refused(err error) bool {
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return false
	}
	return setDirect(f.File, false) == nil
}

func setDirect(f *os.File, direct bool) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	flags &^= unix.O_DIRECT
	if direct {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return err
}

// newBuffer returns page-aligned memory outside the Go heap, which goes back to
// the system with freeBuffer rather than some time later.
func newBuffer(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	return b, nil
}

func freeBuffer(b []byte) { _ = unix.Munmap(b) }
