package memory

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// maxListed bounds the folders of a volume that Clear looks at, maxCleared those that
	// it removes.
	maxListed  = 1 << 10
	maxCleared = 16
)

// Clear removes, among the folders of an open one that are the caller's by their names, what
// nobody can go on from any more: images that are marked as used, and the remains of saves
// that came to no end. What is in use, or may be, stays. It returns what it removed.
func Clear(parent *os.File, own func(name string) bool) (removed []string, err error) {
	fd, err := unix.Openat(int(parent.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	dir := os.NewFile(uintptr(fd), parent.Name())
	defer dir.Close()
	names, err := dir.Readdirnames(maxListed)
	if len(names) == 0 {
		return nil, nil // or it can't be listed, and then there is nothing to clear
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		if !own(name) || len(removed) == maxCleared {
			continue
		}
		gone, err := clearOne(dir, name)
		if gone {
			removed = append(removed, name)
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// clearOne removes a folder if it is useless.
func clearOne(parent *os.File, name string) (gone bool, err error) {
	d, err := openFolderIn(parent, name)
	if err != nil {
		return false, nil // not a folder, or gone meanwhile
	}
	defer d.dir.Close()
	names, err := d.names()
	if err != nil {
		return false, err
	}
	if kindOf(names) != kindUnfinished && !(kindOf(names) == kindImage && slices.Contains(names, UsedName)) {
		return false, nil
	}
	err = d.removeAll()
	if errors.Is(err, ErrInUse) || errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}
