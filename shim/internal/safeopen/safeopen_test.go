package safeopen

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/faultfs"
)

// TestLinks: root is not led to others' files by who may write to a folder on the way.
func TestLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, and files of several users")
	}
	const alice, bob = 70001, 70002
	dir := t.TempDir()
	put := func(name string, uid int, make func(path string) error) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(make(path), os.Lchown(path, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	file := func(path string) error { return os.WriteFile(path, []byte(filepath.Base(path)), 0o600) }
	link := func(to string) func(string) error { return func(path string) error { return os.Symlink(to, path) } }
	folder := func(path string) error { return os.Mkdir(path, 0o755) }
	put("root's", 0, file)
	put("alice", alice, folder)
	put("alice/disk", alice, file)
	put("bob's", bob, file)
	put("alice/own", alice, link("disk"))
	put("alice/up", alice, link("../alice/own"))
	put("alice/to-root", alice, link("../root's"))
	put("alice/to-bob", alice, link(filepath.Join(dir, "bob's")))
	put("alice/dev", alice, link("/dev/null"))
	put("alice/above", alice, link("..")) // a folder on the way
	put("alice/circle", alice, link("circle"))
	put("alice/nowhere", alice, link("nothing"))
	put("by-root", 0, link("bob's"))
	put("by-root-again", 0, link("alice/to-root"))
	put("folder", 0, link("alice"))
	put("alice/proc", alice, link("/proc/self/fd/0"))
	before := descriptors(t)
	for path, want := range map[string]string{
		"root's": "root's", "alice/disk": "disk", "alice/own": "disk", "alice/up": "disk",
		"by-root": "bob's", "folder/disk": "disk", "folder/own": "disk", "alice/above/alice/own": "disk",
		"alice/to-root": "user 70001's", "alice/to-bob": "file of user 70002", "alice/dev": "user 70001's",
		"alice/above/root's": "user 70001's", "by-root-again": "user 70001's", "folder/to-bob": "file of user 70002",
		"alice/circle": "too many levels", "alice/nowhere": "no such file", "alice/proc": "too many levels",
		"alice/disk/x": "not a directory", "alice": "neither a regular file",
	} {
		got, err := content(filepath.Join(dir, path))
		if err != nil {
			got = err.Error()
		}
		if (err == nil) != !strings.ContainsAny(want, " ") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// TestMagicLinks: a pod's shim, which follows the links of its user, isn't led to its own
// descriptors by those of /proc.
func TestMagicLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its user
		const uid = 70001
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- errno
			return
		}
		fd, err := open(fmt.Sprintf("/proc/thread-self/fd/%d", file.Fd()), unix.O_RDONLY)
		if err == nil {
			unix.Close(fd)
		}
		done <- err
	}()
	if err := <-done; !errors.Is(err, unix.ELOOP) {
		t.Errorf("a descriptor opened by its name in /proc: %v", err)
	}
}

// TestLinksToSockets: nor is it to others' sockets, where who listens takes it for root,
// and which the VMM's user would get leave to use.
func TestLinksToSockets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, and files of several users")
	}
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, owner := range map[string]int{"root's": 0, "another's": 70001} {
		link := filepath.Join(dir, name)
		if err := errors.Join(os.Symlink("agent", link), os.Lchown(link, owner, owner)); err != nil {
			t.Fatal(err)
		}
		place, err := Socket(link)
		place.Close()
		if refused := errors.Is(err, fs.ErrPermission); refused != (owner != 0) || err != nil && !refused {
			t.Errorf("by %s link: %v", name, err)
		}
	}
}

// TestLinksInterrupted: a signal that interrupts what a network filesystem or one in a
// process is asked (Go's runtime sends itself some) is no fault.
func TestLinksInterrupted(t *testing.T) {
	f := faultfs.ForTest(t)
	path := func(name string) string { return filepath.Join(f.Path(), name) }
	if err := errors.Join(os.WriteFile(path("disk"), []byte("content"), 0o600), os.Symlink("disk", path("link"))); err != nil {
		t.Fatal(err)
	}
	f.Arm()
	if _, err := content(path("link")); err != nil {
		t.Fatal(err)
	}
	asked := f.Counts()
	for _, op := range []faultfs.Op{faultfs.OpLookup, faultfs.OpReadlink, faultfs.OpOpen} {
		if asked[op] == 0 {
			t.Errorf("%s: not tried", op)
		}
	}
	for op, count := range asked {
		for n := range count {
			f.Arm(faultfs.Fault{Op: op, Nth: n + 1, Errno: unix.EINTR})
			if got, err := content(path("link")); got != "content" || err != nil {
				t.Errorf("%s %d is interrupted: %q, %v", op, n+1, got, err)
			}
		}
	}
	f.Disarm()
}

// content is what File finds.
func content(path string) (string, error) {
	f, err := File(path, false)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 100)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(b[:n]), err
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
