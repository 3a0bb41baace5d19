package sysfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is one of the three roots, by a descriptor that paths are looked up from.
type tree struct {
	root string
	fd   int
	err  error
}

// maxRetries bounds how often a look-up is tried again: the kernel gives EAGAIN
// when something was renamed or mounted anywhere while it went through a "..".
const maxRetries = 64

// open opens a file below the root that its path begins with. No link is
// followed out of the root, and no magic link at all (RESOLVE_BENEATH and
// RESOLVE_NO_MAGICLINKS, openat2(2)); relative links and mounts within it, which
// sysfs is full of, are. O_NONBLOCK keeps the open from waiting for the other
// end of a pipe.
func (r *reader) open(path string, flags uint64) (int, error) {
	fd, name, err := r.locate(path)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range maxRetries {
		var opened int
		opened, err = unix.Openat2(fd, name, &how)
		if err == nil {
			return opened, nil
		}
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return -1, &fs.PathError{Op: "open", Path: path, Err: err}
}

// locate finds the root that a path is below and the rest of the path.
func (r *reader) locate(path string) (fd int, name string, err error) {
	if r.trees == nil {
		r.openTrees()
	}
	path = filepath.Clean(path)
	best := -1
	for i, t := range r.trees {
		rest, ok := strings.CutPrefix(path, t.root)
		if !ok || (rest != "" && rest[0] != '/' && t.root != "/") {
			continue
		}
		if best < 0 || len(t.root) > len(r.trees[best].root) {
			best = i
			name = strings.TrimPrefix(rest, "/")
		}
	}
	if best < 0 {
		return -1, "", errors.New("the path is below none of the roots")
	}
	if name == "" {
		name = "."
	}
	return r.trees[best].fd, name, r.trees[best].err
}

// openTrees opens the roots; what can't be opened is known by its error, which
// every look-up below it then gets.
func (r *reader) openTrees() {
	r.trees = make([]tree, 0, 3)
	for _, root := range []string{r.roots.SysPath(), r.roots.ProcPath(), r.roots.DevPath()} {
		fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		r.trees = append(r.trees, tree{root: root, fd: fd, err: err})
	}
}

// close gives the descriptors of the roots back.
func (r *reader) close() {
	for _, t := range r.trees {
		if t.err == nil {
			unix.Close(t.fd)
		}
	}
	r.trees = nil
}
