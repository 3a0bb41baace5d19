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
	// whole: a file that gives less than a page when it is read has no more.
	// So it is in /sys, not in /proc.
	whole bool
}

// maxRetries bounds how often a look-up is tried again: the kernel gives EAGAIN
// when something was renamed or mounted anywhere while it went through a "..".
const maxRetries = 64

// open opens a file below the root that its path begins with. No link is
// followed out of the root, and no magic link at all (RESOLVE_BENEATH and
// RESOLVE_NO_MAGICLINKS, openat2(2)); relative links and mounts within it, which
// sysfs is full of, are. O_NONBLOCK keeps the open from waiting for the other
// end of a pipe. whole is that of the root.
func (r *reader) open(path string, flags uint64) (fd int, whole bool, err error) {
	t, name, err := r.locate(path)
	if err != nil {
		return -1, false, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range maxRetries {
		fd, err = unix.Openat2(t.fd, name, &how)
		if err == nil {
			return fd, t.whole, nil
		}
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return -1, false, &fs.PathError{Op: "open", Path: path, Err: err}
}

// locate finds the root that a path is below, the innermost if there are several,
// and the rest of the path.
func (r *reader) locate(path string) (found *tree, name string, err error) {
	if r.trees == nil {
		r.openTrees()
	}
	path = filepath.Clean(path)
	for i := range r.trees {
		t := &r.trees[i]
		rest, ok := strings.CutPrefix(path, t.root)
		if !ok || (rest != "" && rest[0] != '/' && t.root != "/") || (found != nil && len(t.root) <= len(found.root)) {
			continue
		}
		found, name = t, strings.TrimPrefix(rest, "/")
	}
	switch {
	case found == nil:
		return nil, "", errors.New("the path is below none of the roots")
	case name == "":
		name = "."
	}
	return found, name, found.err
}

// openTrees opens the roots; what can't be opened is known by its error, which
// every look-up below it then gets.
func (r *reader) openTrees() {
	r.trees = make([]tree, 0, 3)
	for _, root := range []string{r.roots.SysPath(), r.roots.ProcPath(), r.roots.DevPath()} {
		fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		r.trees = append(r.trees, tree{root: root, fd: fd, err: err, whole: root == r.roots.SysPath()})
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
