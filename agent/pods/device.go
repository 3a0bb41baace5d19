package pods

import (
	"fmt"
	"os"
	"strings"

	"github.com/vmlet/vmlet/internal/posixacl"
	"golang.org/x/sys/unix"
)

// GrantDevice lets a user open a device node in the container that a process is
// in, and nowhere else: the node must be one of the container's own, and the same
// device as the node's own at that path. proc is /proc, path "/dev/kvm".
//
// The user is given access by the file's access control list: the runtime makes
// the file with the mode and group that it has on the node, and no container has
// that group.
func GrantDevice(proc string, pid int, path string, uid uint32) error {
	at := fmt.Sprintf("%s/%d/root", proc, pid)
	root, err := os.OpenFile(at, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("the container of process %d: %w", pid, err)
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: at + path, Err: err}
	}
	node := os.NewFile(uintptr(fd), at+path)
	defer node.Close()
	if done, err := checkNode(node, path); done || err != nil {
		return err
	}
	if err := posixacl.GrantFile(node, uid, posixacl.Read|posixacl.Write); err != nil {
		return fmt.Errorf("%s in the container of process %d: %w", path, pid, err)
	}
	return nil
}

// checkNode compares a device node in a container with the node's own. done:
// everybody may use it already.
func checkNode(node *os.File, path string) (done bool, err error) {
	var inside, own unix.Stat_t
	if err := unix.Fstat(int(node.Fd()), &inside); err != nil {
		return false, &os.PathError{Op: "stat", Path: node.Name(), Err: err}
	}
	if err := unix.Lstat(path, &own); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case inside.Mode&unix.S_IFMT != unix.S_IFCHR || inside.Rdev != own.Rdev:
		return false, fmt.Errorf("%s is not the device that is allocated", node.Name())
	case inside.Mode&0o006 == 0o006:
		return true, nil
	case inside.Dev == own.Dev && inside.Ino == own.Ino:
		return false, fmt.Errorf("%s is the node's own file, mounted into the container: leave out that mount, as the kubelet gives the container one of its own", node.Name())
	}
	return false, nil
}
