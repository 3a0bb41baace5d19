package memory

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// CheckSpace returns a SpaceError if the filesystem of dir, or of its nearest
// parent that exists, has less than need bytes for an unprivileged user. What
// is free can change at any time: the check is for an early and clear answer.
func CheckSpace(dir string, need uint64) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		var st unix.Statfs_t
		err := interrupted.Retry(func() error { return unix.Statfs(dir, &st) })
		switch {
		case err == nil:
			return enough(dir, &st, need)
		case !errors.Is(err, unix.ENOENT) || dir == "/":
			return contract.Errorf("%s: free space: statfs: %w", contract.ObjectName(dir), err)
		}
		dir = filepath.Dir(dir)
	}
}

// CheckSpace is CheckSpace of the image's own folder, whatever has its name by now.
func (w *Writer) CheckSpace(need uint64) error {
	var st unix.Statfs_t
	if err := interrupted.Retry(func() error { return unix.Fstatfs(w.folder.fd(), &st) }); err != nil {
		return contract.Errorf("%s: free space: statfs: %w", contract.ObjectName(w.folder.path), err)
	}
	return enough(w.folder.path, &st, need)
}

func enough(dir string, st *unix.Statfs_t, need uint64) error {
	if avail := st.Bavail * uint64(st.Bsize); avail < need {
		return &SpaceError{Dir: dir, Need: need, Available: avail}
	}
	return nil
}
