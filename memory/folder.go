package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/flock"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// folder is an image's folder, by a descriptor: its path is for errors alone.
type folder struct {
	dir  *os.File
	path string
	// parent is the folder that path is a name in; nil: path is absolute.
	parent *os.File
}

func openFolder(path string) (*folder, error) { return openFolderIn(nil, path) }

func openFolderIn(parent *os.File, path string) (*folder, error) {
	fd, err := interrupted.RetryInt(func() (int, error) {
		return unix.Openat(fdOf(parent), path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		hint := ""
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			hint = " (symbolic links are not followed)"
		}
		return nil, contract.Errorf("%s: open folder%s: %w", contract.ObjectName(path), hint, err)
	}
	return &folder{os.NewFile(uintptr(fd), path), path, parent}, nil
}

// fdOf is what paths begin at.
func fdOf(parent *os.File) int {
	if parent == nil {
		return unix.AT_FDCWD
	}
	return int(parent.Fd())
}

func (d *folder) fd() int                 { return int(d.dir.Fd()) }
func (d *folder) join(name string) string { return filepath.Join(d.path, name) }

// open opens, or with O_CREAT makes, a regular file in the folder.
func (d *folder) open(name string, flags int) (*os.File, error) {
	if flags&unix.O_CREAT == 0 {
		// Opening a device or a FIFO would do something; look before.
		var st unix.Stat_t
		if err := interrupted.Retry(func() error { return unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
			return nil, &os.PathError{Op: "stat", Path: d.join(name), Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil, damagedFile(d.join(name), "it is %s, not a regular file", fileKind(st.Mode))
		}
	}
	fd, err := interrupted.RetryInt(func() (int, error) {
		return unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.join(name), Err: err}
	}
	// O_NONBLOCK was for a FIFO that came in between; regular files ignore it,
	// but it would be inherited.
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "fcntl", Path: d.join(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), d.join(name))
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = damagedFile(d.join(name), "not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func fileKind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFIFO:
		return "a FIFO"
	}
	return "a special file"
}

// remove unlinks a file of the folder; that it isn't there is no error.
func (d *folder) remove(name string) error {
	err := interrupted.Retry(func() error { return unix.Unlinkat(d.fd(), name, 0) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: d.join(name), Err: err}
	}
	return nil
}

// removeManifest makes the folder no image. Before the rest is removed, sync is to
// follow: half an image must not come back after a power cut.
func (d *folder) removeManifest() error {
	if err := d.remove(ManifestName); err != nil {
		return fmt.Errorf("%w: the folder still is an image: remove it", err)
	}
	return nil
}

// names lists the folder, without the lost+found of a filesystem's root.
func (d *folder) names() ([]string, error) {
	dir, err := openAgain(d)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, contract.Errorf("%s: list: %w", contract.ObjectName(d.path), err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "lost+found" })
	slices.Sort(names)
	return names, nil
}

// openAgain opens the same folder again: with a read offset, and a lock, of its own.
func openAgain(d *folder) (*os.File, error) {
	fd, err := interrupted.RetryInt(func() (int, error) {
		return unix.Openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, contract.Errorf("%s: open folder: %w", contract.ObjectName(d.path), err)
	}
	return os.NewFile(uintptr(fd), d.path), nil
}

// rmdir removes the folder if it is empty and still what its path names.
func (d *folder) rmdir() error {
	if err := d.checkLinked(); err != nil {
		return err
	}
	err := interrupted.Retry(func() error { return unix.Unlinkat(fdOf(d.parent), d.path, unix.AT_REMOVEDIR) })
	if err != nil && !errors.Is(err, unix.ENOENT) { // that it is gone meanwhile is as good
		return &os.PathError{Op: "rmdir", Path: d.path, Err: err}
	}
	return nil
}

// checkLinked refuses a folder that was removed, or replaced, since it was opened.
func (d *folder) checkLinked() error {
	var open, named unix.Stat_t
	if err := interrupted.Retry(func() error { return unix.Fstat(d.fd(), &open) }); err != nil {
		return &os.PathError{Op: "stat", Path: d.path, Err: err}
	}
	if err := interrupted.Retry(func() error { return unix.Fstatat(fdOf(d.parent), d.path, &named, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return &os.PathError{Op: "stat", Path: d.path, Err: err}
	}
	if open.Dev != named.Dev || open.Ino != named.Ino {
		return contract.Errorf("%s: replaced by another folder meanwhile", contract.ObjectName(d.path))
	}
	return nil
}

// syncParent makes the folder's own name durable.
func (d *folder) syncParent() error {
	path := "."
	if d.parent == nil {
		path = filepath.Dir(d.path)
	}
	fd, err := interrupted.RetryInt(func() (int, error) {
		return unix.Openat(fdOf(d.parent), path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return contract.Errorf("the folder of %s: open: %w", contract.ObjectName(d.path), err)
	}
	parent := os.NewFile(uintptr(fd), path)
	defer parent.Close()
	return parent.Sync()
}

// Lock is a shared lock on an image's folder.
type Lock struct{ dir *os.File }

// LockShared locks a folder for as long as something runs from it: Create and
// Remove refuse it then. It fails with ErrInUse while the folder is being
// written or removed.
func LockShared(dir string) (*Lock, error) {
	d, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer d.dir.Close()
	return d.lockShared()
}

func (d *folder) lockShared() (*Lock, error) {
	f, err := openAgain(d)
	if err != nil {
		return nil, err
	}
	if err := lock(f, unix.LOCK_SH); err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// Unlock releases the lock, once.
func (l *Lock) Unlock() error { return l.dir.Close() }

// lock locks without waiting. The errors wrap ErrInUse, or errors.ErrUnsupported
// where the filesystem has no locks for folders (NFS answers EBADF to an
// exclusive one, as it wants the file open for writing).
func lock(dir *os.File, how int) error {
	err := flock.Try(dir, how)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return contract.Errorf("%s: %w: a save into it or a machine that runs from it has locked it", contract.ObjectName(dir.Name()), ErrInUse)
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return contract.Errorf("%s: its filesystem has no locks for folders: %w (%w)", contract.ObjectName(dir.Name()), errors.ErrUnsupported, err)
	}
	return contract.Errorf("%s: lock: %w", contract.ObjectName(dir.Name()), err)
}
