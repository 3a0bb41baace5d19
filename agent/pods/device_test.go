package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The device that is granted: everybody may open it, wherever it is.
const nullDevice = "/dev/null"

// newContainer is a made-up container's root: device nodes on a tmpfs, which has
// access control lists, in a mount namespace of the machine's.
func newContainer(t *testing.T) (proc, root string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make device nodes")
	}
	proc = t.TempDir()
	root = filepath.Join(proc, "100", "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		t.Skipf("can't mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	return proc, root
}

func makeNode(t *testing.T, path string, kind, mode uint32, device uint64) {
	t.Helper()
	if err := unix.Mknod(path, kind|mode, int(device)); err != nil {
		t.Skipf("can't make device nodes: %v", err)
	}
	if err := unix.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func grantIn(t *testing.T, proc, path string, uid uint32) error {
	t.Helper()
	root, err := Root(proc, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return GrantDevice(root, path, uid)
}

// mayOpen says whether a user may, as the kernel sees it.
func mayOpen(t *testing.T, path string, uid int) bool {
	t.Helper()
	list := make([]byte, 4096)
	n, err := unix.Lgetxattr(path, "system.posix_acl_access", list)
	if errors.Is(err, unix.ENODATA) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("\x02\x00\x06\x00%c%c%c%c", byte(uid), byte(uid>>8), byte(uid>>16), byte(uid>>24)) // ACL_USER, rw
	return strings.Contains(string(list[4:n]), want)
}

const grantedUser = 100 // a byte that UTF-8 has as it is

func TestGrantDevice(t *testing.T) {
	var own unix.Stat_t
	if err := unix.Stat(nullDevice, &own); err != nil {
		t.Fatal(err)
	}
	null, zero := own.Rdev, unix.Mkdev(1, 5)
	for _, test := range []struct {
		name    string
		make    func(t *testing.T, root, node string)
		granted bool
		want    string // of the error; empty: none
	}{
		{"the container's own", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFCHR, 0o660, null) }, true, ""},
		{"for everybody already", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFCHR, 0o666, null) }, false, ""},
		{"for everybody to read", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFCHR, 0o664, null) }, true, ""},
		{"another device", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFCHR, 0o660, zero) }, false, "not the device"},
		{"a disk of that number", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFBLK, 0o660, null) }, false, "not the device"},
		{"a file", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFREG, 0o660, 0) }, false, "not the device"},
		{"a file for everybody", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFREG, 0o666, 0) }, false, "not the device"},
		{"a FIFO", func(t *testing.T, _, node string) { makeNode(t, node, unix.S_IFIFO, 0o660, 0) }, false, "not the device"},
		{"a folder", func(t *testing.T, _, node string) {
			if err := os.Mkdir(node, 0o700); err != nil {
				t.Fatal(err)
			}
		}, false, "not the device"},
		{"a link to the container's own", func(t *testing.T, root, node string) {
			makeNode(t, filepath.Join(root, "null"), unix.S_IFCHR, 0o660, null)
			if err := os.Symlink("../null", node); err != nil {
				t.Fatal(err)
			}
		}, false, "not the device"},
		{"a folder that is a link", func(t *testing.T, root, node string) {
			makeNode(t, filepath.Join(root, "null"), unix.S_IFCHR, 0o660, null)
			if err := os.Remove(filepath.Dir(node)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/", filepath.Dir(node)); err != nil {
				t.Fatal(err)
			}
		}, false, "too many levels"},
		{"none", func(t *testing.T, _, node string) {}, false, "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proc, root := newContainer(t)
			node := filepath.Join(root, nullDevice)
			test.make(t, root, node)
			err := grantIn(t, proc, nullDevice, grantedUser)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			}
			for _, path := range []string{node, filepath.Join(root, "null")} {
				if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if st, _ := os.Lstat(path); st.Mode()&os.ModeSymlink != 0 {
					continue
				}
				if got := mayOpen(t, path, grantedUser); got != (test.granted && path == node) {
					t.Errorf("%s: the user may open it: %t", path, got)
				}
			}
		})
	}
}

// TestGrantDeviceLeavesTheNodesOwn: a file that is mounted from the node is the
// node's, and every process there would see what was granted.
func TestGrantDeviceLeavesTheNodesOwn(t *testing.T) {
	_, root := newContainer(t)
	dev := filepath.Join(root, "dev")
	own := filepath.Join(dev, "own")
	makeNode(t, own, unix.S_IFCHR, 0o660, unix.Mkdev(1, 3))
	// For checkNode a path of the node's is one of the container's, mounted.
	f, err := os.OpenFile(own, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if done, err := checkNode(f, own); done || err == nil || !strings.Contains(err.Error(), "the node's own file") {
		t.Errorf("done %t, %v", done, err)
	}
	copied := filepath.Join(dev, "copied")
	makeNode(t, copied, unix.S_IFCHR, 0o660, unix.Mkdev(1, 3))
	if done, err := checkNode(f, copied); done || err != nil {
		t.Errorf("of another file: done %t, %v", done, err)
	}
	if _, err := checkNode(f, filepath.Join(dev, "nonesuch")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of what the node doesn't have: %v", err)
	}
}

// TestGrantDeviceInUserNamespace: what a runtime mounts there is the node's own.
func TestGrantDeviceInUserNamespace(t *testing.T) {
	for mode, want := range map[uint32]string{0o660: "hostUsers: false", 0o666: ""} {
		_, dir := newContainer(t)
		path := filepath.Join(dir, "dev", "kvm")
		makeNode(t, path, unix.S_IFCHR, mode, unix.Mkdev(1, 3))
		root, err := Root("/proc", inUserNamespace(t))
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		err = GrantDevice(root, path, grantedUser)
		if want == "" && err != nil {
			t.Errorf("mode %o: %v", mode, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("mode %o: %v, want %q", mode, err, want)
		}
		if mayOpen(t, path, grantedUser) {
			t.Errorf("mode %o: the node's own file has another access list", mode)
		}
	}
}

// inUserNamespace starts a process with user and mount namespaces of its own.
func inUserNamespace(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("cat") // it ends with its input
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: 1 << 16, Size: 1 << 16}}, GidMappings: []syscall.SysProcIDMap{{HostID: 1 << 16, Size: 1 << 16}},
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return cmd.Process.Pid
}

func TestRootOfNoProcess(t *testing.T) {
	if f, err := Root(t.TempDir(), 100); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "process 100") {
		t.Errorf("%v, %v", f, err)
	}
}

// TestGrantVolume: a block device that the runtime has made in the container, whichever it
// is, and no other file.
func TestGrantVolume(t *testing.T) {
	loop := unix.Mkdev(7, 250)
	for _, test := range []struct {
		name    string
		make    func(t *testing.T, node string)
		granted bool
		want    string // of the error; empty: none
	}{
		{"the container's own", func(t *testing.T, node string) { makeNode(t, node, unix.S_IFBLK, 0o660, loop) }, true, ""},
		{"for everybody already", func(t *testing.T, node string) { makeNode(t, node, unix.S_IFBLK, 0o666, loop) }, false, ""},
		{"a character device", func(t *testing.T, node string) { makeNode(t, node, unix.S_IFCHR, 0o660, loop) }, false, "no block device"},
		{"a file", func(t *testing.T, node string) { makeNode(t, node, unix.S_IFREG, 0o660, 0) }, false, "no block device"},
		{"none", func(*testing.T, string) {}, false, "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proc, path := newContainer(t)
			root, err := Root(proc, 100)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			node := filepath.Join(path, "dev", "data")
			test.make(t, node)
			err = GrantVolume(root, "/dev/data", grantedUser)
			if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if _, err := os.Lstat(node); errors.Is(err, fs.ErrNotExist) {
				return
			}
			if got := mayOpen(t, node, grantedUser); got != test.granted {
				t.Errorf("the user may open it: %t, want %t", got, test.granted)
			}
		})
	}
}

// TestGrantVolumeLeavesTheNodesOwn: a file that is mounted from the node's folder of devices
// is the node's.
func TestGrantVolumeLeavesTheNodesOwn(t *testing.T) {
	_, root := newContainer(t)
	node := filepath.Join(root, "dev", "data")
	makeNode(t, node, unix.S_IFBLK, 0o660, unix.Mkdev(7, 250))
	f, err := os.OpenFile(node, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if done, err := checkVolume(f, filepath.Join(root, "dev")); done || err == nil || !strings.Contains(err.Error(), "the node's own file") {
		t.Errorf("done %t, %v", done, err)
	}
}

// TestVolumeNumber: a block device is known by its number, without being opened, and no other file is one.
func TestVolumeNumber(t *testing.T) {
	proc, path := newContainer(t)
	root, err := Root(proc, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	makeNode(t, filepath.Join(path, "dev", "data"), unix.S_IFBLK, 0o600, unix.Mkdev(7, 250))
	makeNode(t, filepath.Join(path, "dev", "null"), unix.S_IFCHR, 0o600, unix.Mkdev(1, 3))
	if err := os.Symlink("data", filepath.Join(path, "dev", "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := VolumeNumber(root, "/dev/data"); err != nil || got != unix.Mkdev(7, 250) {
		t.Errorf("%d, %v, want %d", got, err, unix.Mkdev(7, 250))
	}
	for _, other := range []string{"/dev/null", "/dev/link", "/dev/none"} {
		if got, err := VolumeNumber(root, other); err == nil {
			t.Errorf("%s is device %d", other, got)
		}
	}
}
