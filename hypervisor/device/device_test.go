package device

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"golang.org/x/sys/unix"
)

// TestNoAccess needs a thread that isn't root's; the file system user id is a thread's own.
func TestNoAccess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: can't become another user")
	}
	path := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	failure := make(chan *Failure)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
		}
		_, fail := Open(path, nil)
		failure <- fail
	}()
	s := (<-failure).Status()
	if s.Level != hypervisor.Unusable || s.Errno != unix.EACCES {
		t.Errorf("%+v, want unusable with EACCES", s)
	}
	for _, want := range []string{"permission denied (EACCES)", "mode 0000", "let a group have it"} {
		if !strings.Contains(s.Sentence(), want) {
			t.Errorf("%q doesn't say %q", s.Sentence(), want)
		}
	}
}

func TestFailedNamesErrno(t *testing.T) {
	if got := Failed("/dev/x", unix.EBUSY, "").Error(); got != "/dev/x: device or resource busy (EBUSY)" {
		t.Error(got)
	}
	if got := Failed("/dev/x", 4000, "").Error(); !strings.Contains(got, "(errno 4000)") {
		t.Error(got)
	}
}

// A system call that never returns holds up nobody.
func TestBoundedHang(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	s := Bounded(ctx, "/dev/x", func(context.Context) hypervisor.Status {
		cancel()
		<-release
		return hypervisor.Status{Level: hypervisor.Works}
	})
	if s.Level != hypervisor.Unusable || !strings.Contains(s.Reason, "/dev/x didn't answer") {
		t.Errorf("%+v", s)
	}
}

func TestErrnoNames(t *testing.T) {
	for e := range syscall.Errno(4000) {
		name := ErrnoName(e)
		if back := ErrnoOf(name); back != e && (back != 0 || unix.ErrnoName(e) != "") {
			t.Errorf("%d is %q, which is %d", e, name, back)
		}
	}
	if e := ErrnoOf("ENONSENSE"); e != 0 {
		t.Errorf("a name of none is %d", e)
	}
}
