package pods

import (
	"fmt"
	"os"
	"strings"

	"github.com/vmlet/vmlet/internal/posixacl"
	"golang.org/x/sys/unix"
)

// Root opens the root folder of the container that a process is in. proc is /proc.
//
// It is the container of whatever process has the number by then: whether that is
// still the one that was meant is to be asked afterwards.
func Root(proc string, pid int) (*os.File, error) {
	root, err := os.OpenFile(fmt.Sprintf("%s/%d/root", proc, pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("the container of process %d: %w", pid, err)
	}
	return root, nil
}

// GrantDevice lets a user open a device node in a container, and nowhere else: the
// node must be one of the container's own, and the same device as the node's own
// at that path. root is the container's root folder, path "/dev/kvm".
//
// The user is given access by the file's access control list: the runtime makes
// the file with the mode and group that it has on the node, and no container has
// that group.
//
// In a user namespace (hostUsers: false) a runtime can make no device node, and mounts
// the node's own. An entry in that file's list would be for all of the node, and would
// outlive a pod that ends while no agent is there to take it back: it is refused, unless
// everybody may open the file.
func GrantDevice(root *os.File, path string, uid uint32) error {
	node, err := openNode(root, path)
	if err != nil {
		return err
	}
	defer node.Close()
	if done, err := checkNode(node, path); done || err != nil {
		return err
	}
	return posixacl.GrantFile(node, uid, posixacl.Read|posixacl.Write)
}

// GrantVolume lets a user open a volume with volumeMode Block in a container, as
// GrantDevice does. path is the devicePath that the pod's specification gives the volume.
//
// Which device it must be is not checked: no matter who made the file, its container reads and
// writes no device but those that the container's device cgroup lists.
func GrantVolume(root *os.File, path string, uid uint32) error {
	node, err := openNode(root, path)
	if err != nil {
		return err
	}
	defer node.Close()
	if done, err := checkVolume(node, "/dev"); done || err != nil {
		return err
	}
	return posixacl.GrantFile(node, uid, posixacl.Read|posixacl.Write)
}

// VolumeNumber is the number of the device at a path in a container, without the node of it being opened.
func VolumeNumber(root *os.File, path string) (uint64, error) {
	node, err := openNode(root, path)
	if err != nil {
		return 0, err
	}
	defer node.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(node.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: node.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("%s is no block device", node.Name())
	}
	return uint64(st.Rdev), nil
}

// openNode opens a path in a container so that no symbolic link leads elsewhere.
func openNode(root *os.File, path string) (*os.File, error) {
	fd, err := unix.Openat2(int(root.Fd()), strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root.Name() + path, Err: err}
	}
	return os.NewFile(uintptr(fd), root.Name()+path), nil
}

// checkNode compares a device node in a container with the node's own. done: it is
// that device, and everybody may use it already.
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
		return false, fmt.Errorf("%s is the node's own file, as in a pod with hostUsers: false or with the node's /dev as a volume: leave that out, or let every user of the node open %s (chmod 0666, and a udev rule for the next boot)", node.Name(), path)
	}
	return false, nil
}

// checkVolume wants a block device whose file is the container's own. dev is the node's
// folder of devices. done: everybody may use it already.
func checkVolume(node *os.File, dev string) (done bool, err error) {
	var inside, own unix.Stat_t
	if err := unix.Fstat(int(node.Fd()), &inside); err != nil {
		return false, &os.PathError{Op: "stat", Path: node.Name(), Err: err}
	}
	if err := unix.Stat(dev, &own); err != nil {
		return false, &os.PathError{Op: "stat", Path: dev, Err: err}
	}
	switch {
	case inside.Mode&unix.S_IFMT != unix.S_IFBLK:
		return false, fmt.Errorf("%s is no block device", node.Name())
	case inside.Mode&0o006 == 0o006:
		return true, nil
	case inside.Dev == own.Dev:
		return false, fmt.Errorf("%s is the node's own file, as in a pod with hostUsers: false: leave that out, or use a claim with volumeMode Filesystem", node.Name())
	}
	return false, nil
}
