package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// ErrInUse means that another program has a lock on an image that excludes this use of it.
var ErrInUse = errors.New("another process has it open")

// QEMU says with locks on single bytes of an image what it does with it (RAW_LOCK_PERM_BASE and RAW_LOCK_SHARED_BASE of its
// block/file-posix.c, BLK_PERM_WRITE of block-common.h). All are read locks, so that any number of programs can have one; who must
// not share asks whether another has it. They belong to an open file description (F_OFD_SETLK, fcntl(2)).
const (
	byteWrites   = 101 // its holder writes
	byteNoWriter = 201 // its holder lets nobody else write
)

// Lock takes the locks of a program that reads an image, or with write also writes to it, and lets nobody else write. They belong
// to f's open file description: a QEMU that inherits f has them too, and gives them up or takes them again as its own. The error
// wraps ErrInUse if another description's locks exclude that; f may have some of the locks then, until it is closed. Where the filesystem has no locks it does nothing.
func Lock(f *os.File, write bool) error {
	take := []int64{byteNoWriter}
	refuse := []int64{byteWrites}
	if write {
		take, refuse = append(take, byteWrites), append(refuse, byteNoWriter)
	}
	for _, at := range take {
		l := unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1}
		if err := fcntlLock(f, unix.F_OFD_SETLK, &l); err != nil {
			return err
		}
	}
	for _, at := range refuse {
		if err := unlocked(f, unix.F_WRLCK, at, 1); err != nil {
			return err
		}
	}
	return nil
}

// Unlocked is for a VMM that opens the image itself and locks it as a whole, cloud-hypervisor for example: it takes no lock. The
// error wraps ErrInUse if another has one that excludes the use.
func Unlocked(f *os.File, write bool) error {
	kind := int16(unix.F_RDLCK)
	if write {
		kind = unix.F_WRLCK
	}
	return unlocked(f, kind, 0, 0)
}

func unlocked(f *os.File, kind int16, start, length int64) error {
	l := unix.Flock_t{Type: kind, Start: start, Len: length}
	if err := fcntlLock(f, unix.F_OFD_GETLK, &l); err != nil {
		return err
	}
	if l.Type == unix.F_UNLCK {
		return nil
	}
	// It is the lock of another now. One that has a read lock on the whole writes nothing, as QEMU would with that byte.
	if start == byteWrites && l.Type == unix.F_RDLCK && l.Start == 0 && l.Len == 0 {
		return nil
	}
	return ErrInUse
}

func fcntlLock(f *os.File, command int, l *unix.Flock_t) error {
	err := control(f, func(fd int) error {
		return interrupted.Retry(func() error { return unix.FcntlFlock(uintptr(fd), command, l) })
	})
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return ErrInUse
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		l.Type = unix.F_UNLCK
		return nil // there are no locks
	case err != nil:
		return fmt.Errorf("locking the image: %w", err)
	}
	return nil
}
