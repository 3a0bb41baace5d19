// Package safeopen opens files and sockets where others may have put symbolic links on the way to them. It
// follows none that would lead root where its maker could not have gone. It must not know of plans. Start
// reading at File.
package safeopen

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// maxLinks bounds the symbolic links on the way to a file, as the kernel does
// (MAXSYMLINKS, linux/namei.h).
const maxLinks = 40

// File opens a regular file or a device. Symbolic links are followed where open does.
func File(path string, write bool) (*os.File, error) { return openBy(open, path, write) }

// Beneath is File, but follows no links below a folder.
func Beneath(folder, path string, write bool) (*os.File, error) {
	return openBy(func(path string, flags int) (int, error) { return openBeneath(folder, path, flags) }, path, write)
}

func openBy(open func(path string, flags int) (int, error), path string, write bool) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is not an absolute path", path)
	}
	flags := unix.O_RDONLY
	if write {
		flags = unix.O_RDWR
	}
	// O_NONBLOCK: a FIFO would make the open wait.
	fd, err := open(path, flags|unix.O_NOCTTY|unix.O_NONBLOCK)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	if err := checkKind(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func checkKind(file *os.File) error {
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if kind := st.Mode().Type(); kind != 0 && kind&os.ModeDevice == 0 {
		return contract.Errorf("%s is neither a regular file nor a device (%v)", contract.ObjectName(file.Name()), st.Mode())
	}
	return SetFlag(file, unix.O_NONBLOCK, false)
}

// SetFlag sets or clears a flag of an open file (fcntl(2), F_SETFL).
func SetFlag(file *os.File, flag int, on bool) error {
	fd := file.Fd()
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil {
		return &os.PathError{Op: "fcntl", Path: file.Name(), Err: err}
	}
	if flags &^= flag; on {
		flags |= flag
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETFL, flags); err != nil {
		return &os.PathError{Op: "fcntl", Path: file.Name(), Err: err}
	}
	return nil
}

// Socket finds a socket, without a connection.
func Socket(path string) (*os.File, error) {
	fd, err := open(path, unix.O_PATH)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	info, err := file.Stat()
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = contract.Errorf("%s is no socket (%v)", contract.ObjectName(path), info.Mode())
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// open opens a file where others may have put symbolic links on the way to it. Root
// would follow them to anywhere: one that is neither root's nor this process's user's
// is followed only to a file of the link's own owner, who could have named it as well.
// Links of /proc, which lead to this process's own descriptors, are never followed.
func open(path string, flags int) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if os.Geteuid() == 0 {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	fd, err := interrupted.RetryInt(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, how) })
	if os.Geteuid() != 0 || err != unix.ELOOP {
		return fd, err
	}
	place, err := find(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(place)
	// The very file that was found, whatever has its name by now.
	return openAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", place), flags)
}

// openBeneath opens a file below a folder without following a link there: who can write to a
// volume is not to choose another file of the pod. The folder itself is the pod's.
func openBeneath(folder, path string, flags int) (int, error) {
	rest, err := filepath.Rel(folder, path)
	if err != nil {
		return -1, err
	}
	dir, err := openAt(unix.AT_FDCWD, folder, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	return interrupted.RetryInt(func() (int, error) { return unix.Openat2(dir, rest, how) })
}

func openAt(dir int, name string, flags int) (int, error) {
	return interrupted.RetryInt(func() (int, error) { return unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0) })
}

func fstat(fd int, st *unix.Stat_t) error {
	return interrupted.Retry(func() error { return unix.Fstat(fd, st) })
}

// find walks to a file without having the kernel follow a link. The descriptor is one
// with O_PATH.
func find(path string) (fd int, err error) {
	w := &walk{at: -1, owners: make(map[uint32]string)}
	defer func() {
		if err != nil && w.at >= 0 {
			unix.Close(w.at)
		}
	}()
	if err := w.root(); err != nil {
		return -1, err
	}
	for rest := path; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		target, err := w.step(name)
		if err != nil {
			return -1, err
		}
		if target == "" {
			continue
		}
		if filepath.IsAbs(target) {
			if err := w.root(); err != nil {
				return -1, err
			}
		}
		rest = target + "/" + rest
	}
	return w.at, w.trusted()
}

// walk is on its way from the root folder.
type walk struct {
	at     int // where it is
	links  int
	owners map[uint32]string // of links that are neither root's nor ours, with one of each
}

// root goes on from the root folder.
func (w *walk) root() error {
	fd, err := openAt(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if w.at >= 0 {
		unix.Close(w.at)
	}
	w.at = fd
	return nil
}

// step goes to what has a name, or returns where it leads if it is a link.
func (w *walk) step(name string) (target string, err error) {
	if name == "" {
		return "", nil
	}
	fd, err := openAt(w.at, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err = fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		unix.Close(w.at)
		w.at = fd
		return "", nil
	}
	defer unix.Close(fd)
	if err != nil {
		return "", err
	}
	return w.link(fd, name, &st)
}

// link reads where a symbolic link leads.
func (w *walk) link(fd int, name string, st *unix.Stat_t) (target string, err error) {
	var fs unix.Statfs_t
	if err := interrupted.Retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return "", err
	}
	if w.links++; w.links > maxLinks || fs.Type == unix.PROC_SUPER_MAGIC {
		return "", unix.ELOOP
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		w.owners[st.Uid] = name
	}
	buf := make([]byte, unix.PathMax)
	n, err := interrupted.RetryInt(func() (int, error) { return unix.Readlinkat(fd, "", buf) })
	return string(buf[:max(n, 0)]), err
}

// trusted refuses a file to which somebody has led who doesn't own it.
func (w *walk) trusted() error {
	var st unix.Stat_t
	if err := fstat(w.at, &st); err != nil {
		return err
	}
	for owner, name := range w.owners {
		if owner != st.Uid {
			return fmt.Errorf("the symbolic link %q on the way is user %d's and leads to a file of user %d: name the file itself, if it is the right one: %w", name, owner, st.Uid, unix.EACCES)
		}
	}
	return nil
}
