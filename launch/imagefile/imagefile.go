// Package imagefile finds a disk or a kernel in the filesystem of a container image, whose
// author is not trusted: no link leads out of the image. It must not know of pods or VMs.
// Faults have no subject: anyone who asks knows the image's name. Start with Image.
package imagefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// diskFolder is where an image has its disk, as its only file.
const diskFolder = "/disk"

const (
	// maxListed bounds the names that a fault lists.
	maxListed = 10
	// maxListedName bounds each of them, in bytes.
	maxListedName = 100
)

// Image is a container image's filesystem.
type Image struct {
	// Root is where it is: "/" in a container of that image.
	Root string
}

// Open opens a file of the image for reading: the one that the path names or, where it is
// empty, the only one in /disk.
func (i Image) Open(name string) (*os.File, error) {
	if name == "" {
		return i.disk()
	}
	f, err := i.file(name)
	if errors.Is(err, os.ErrNotExist) {
		dir := path.Dir(path.Join("/", name))
		return nil, fmt.Errorf("has no file %s; found in %s: %s", name, dir, i.list(dir))
	}
	return f, err
}

func (i Image) disk() (*os.File, error) {
	const none = "has no single disk file under " + diskFolder
	names, err := i.names(diskFolder)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%s, which is a file: put it into a folder (ADD disk.img %s/, with the slash), or give %s as the path", none, diskFolder, diskFolder)
	case err != nil:
		return nil, fmt.Errorf("%s; found: %s", none, i.list("/"))
	case len(names) == 0:
		return nil, errors.New(none + "; found: nothing")
	case len(names) > 1:
		return nil, fmt.Errorf("%s; found: %s: give one of them as the path", none, i.list(diskFolder))
	}
	name := path.Join(diskFolder, names[0])
	if _, err := i.names(name); err == nil {
		return nil, fmt.Errorf("%s, but a folder; found: %s: give the file as the path", none, i.list(name))
	}
	return i.file(name)
}

// file opens a regular file.
func (i Image) file(name string) (*os.File, error) {
	// O_NONBLOCK: a FIFO would make the open wait.
	f, err := i.open(name, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("has a link at %s that leads out of it: put the file itself there", name)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("has a file %s that user %d can't read: let others read it in the image (chmod a+r)", name, os.Getuid())
	case err != nil:
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("has no regular file at %s (%v)", name, st.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open follows links within the image, and none to what is mounted in its container: the
// pod's volumes, /proc. Only what is named without any link may be mounted, as a folder is
// that the image declares to be a volume.
func (i Image) open(name string, flags uint64) (*os.File, error) {
	root, err := os.Open(i.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	const inside = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	f, err := openat2(root, name, flags, inside|unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		return openat2(root, name, flags, inside|unix.RESOLVE_NO_SYMLINKS)
	}
	return f, err
}

func openat2(root *os.File, name string, flags, resolve uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	fd, err := interrupted.RetryInt(func() (int, error) { return unix.Openat2(int(root.Fd()), name, how) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// names are those in a folder, one more than are listed at most.
func (i Image) names(folder string) ([]string, error) {
	d, err := i.open(folder, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(4*maxListed + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// list is what a fault says of a folder. What is mounted in every container is none of the
// image's.
func (i Image) list(folder string) string {
	names, err := i.names(folder)
	if err != nil {
		return "nothing (" + err.Error() + ")"
	}
	if folder == "/" {
		names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains([]string{"dev", "proc", "sys"}, n) })
	}
	if len(names) == 0 {
		return "nothing"
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxListed {
		names, more = names[:maxListed], " …"
	}
	for n, name := range names {
		if len(name) > maxListedName {
			name = name[:maxListedName] + "…"
		}
		if names[n] = filesocket.Printable(name); folder != "/" {
			names[n] = path.Join(folder, names[n])
		}
	}
	return strings.Join(names, ", ") + more
}
