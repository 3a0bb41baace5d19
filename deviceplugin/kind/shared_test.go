package kind

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kubelettest"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/test/suites"
	"golang.org/x/sys/unix"
)

// patience is long: it only ends a test that has failed.
const patience = 30 * time.Second

// makeNode makes a device node like /dev/null's; a test without the right to is
// skipped.
func makeNode(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	if err == unix.EPERM {
		t.Skip("making device nodes needs root")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if f, err := os.Open(path); err != nil {
		t.Skipf("device nodes can't be used in %s: %v", filepath.Dir(path), err)
	} else {
		f.Close()
	}
}

// asNobody calls f with the rights of an unprivileged user to files.
func asNobody(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, _ := unix.SetfsuidRetUid(65534)
	defer unix.Setfsuid(old)
	f()
}

// offer runs a manager with a kubelet beside it.
func offer(t *testing.T, kinds ...deviceplugin.Kind) *kubelettest.Kubelet {
	t.Helper()
	folder, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	k := kubelettest.New(folder)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	m, err := deviceplugin.NewManager(deviceplugin.Config{Folder: folder, Log: slog.New(slog.DiscardHandler)}, kinds)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if len(k.Faults()) > 0 {
			t.Errorf("%q", k.Faults())
		}
	})
	return k
}

func counts(t *testing.T, k *kubelettest.Kubelet, resource string, healthy, unhealthy int) {
	t.Helper()
	ctx, cancel := suites.Patience(context.Background(), patience)
	defer cancel()
	if _, err := k.Wait(ctx, resource, func(r kubelettest.Resource) bool {
		return r.Registered && len(r.Healthy) == healthy && len(r.Unhealthy) == unhealthy
	}); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The device is taken away, given back, replaced by something else, and loses and
// regains its mode.
func TestNodeComesAndGoes(t *testing.T) {
	dev := t.TempDir()
	path := filepath.Join(dev, "net", "tun")
	n := NewNode(contract.ResourceTUN, "net/tun", sysfs.Roots{Dev: dev}, 10, "")
	// Root may open anything: the agent is somebody else here.
	n.probe.open = func(path string) (there bool, obstacle string) {
		asNobody(func() { there, obstacle = openNode(path) })
		return there, obstacle
	}
	must(t, os.Chmod(dev, 0o755))
	must(t, os.Chmod(filepath.Dir(dev), 0o755))
	k := offer(t, n)
	makeNode(t, path)
	counts(t, k, n.Resource(), 10, 0)
	for range 3 {
		must(t, os.Remove(path))
		counts(t, k, n.Resource(), 0, 0)
		makeNode(t, path)
		counts(t, k, n.Resource(), 10, 0)
		must(t, os.Chmod(path, 0o600))
		counts(t, k, n.Resource(), 0, 10)
		must(t, os.Chmod(path, 0o666))
		counts(t, k, n.Resource(), 10, 0)
		must(t, os.RemoveAll(filepath.Dir(path)))
		counts(t, k, n.Resource(), 0, 0)
		must(t, os.Mkdir(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o666))
		counts(t, k, n.Resource(), 0, 10)
		must(t, os.Remove(path))
		makeNode(t, path)
		counts(t, k, n.Resource(), 10, 0)
	}
	answer, err := k.Allocate(t.Context(), n.Resource(), []string{"tun3"})
	must(t, err)
	if d := answer[0].GetDevices(); len(d) != 1 || d[0].GetHostPath() != "/dev/net/tun" || d[0].GetContainerPath() != "/dev/net/tun" {
		t.Errorf("%v", d)
	}
}

func TestNodeFind(t *testing.T) {
	dev := t.TempDir()
	n := NewNode(contract.ResourceKVM, "kvm", sysfs.Roots{Dev: dev}, 3, "vmlet.dev/device=kvm")
	if got := n.Find(t.Context()); len(got) != 0 {
		t.Errorf("%v", got)
	}
	must(t, os.Symlink("/dev/null", filepath.Join(dev, "kvm")))
	got := n.Find(t.Context())
	if len(got) != 3 || got[2].ID != "kvm2" || got[2].Obstacle != "" || got[2].Grant.CDI[0] != "vmlet.dev/device=kvm" || len(got[2].Grant.Nodes) != 0 {
		t.Errorf("%+v", got)
	}
	// A device that hangs: one attempt at a time, and it is waited for.
	release, calls := make(chan struct{}), make(chan struct{}, 10)
	n.probe.open = func(string) (bool, string) { calls <- struct{}{}; <-release; return true, "" }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if got := n.Find(ctx); len(got) != 3 || !strings.Contains(got[0].Obstacle, "doesn't answer") {
			t.Errorf("%+v", got)
		}
	}
	close(release)
	if got := n.Find(t.Context()); len(got) != 3 || got[0].Obstacle != "" {
		t.Errorf("%+v", got)
	}
	if len(calls) != 1 {
		t.Errorf("%d attempts, want 1", len(calls))
	}
}

// The service isn't there, comes, is killed, is started again, and ends.
func TestSocketComesAndGoes(t *testing.T) {
	folder, err := os.MkdirTemp("", "sk")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "pr", "pr-helper.sock")
	s := NewSocket(contract.ResourcePRHelper, path, func() int { return 5 }, "")
	k := offer(t, s)
	listen := func() net.Listener {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		l, err := net.Listen("unix", path)
		must(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		return l
	}
	for range 3 {
		l := listen()
		counts(t, k, s.Resource(), 5, 0)
		l.Close() // killed: the socket stays. Nothing tells, until somebody looks
		must(t, os.Chmod(path, 0o700))
		counts(t, k, s.Resource(), 0, 5)
		must(t, os.Remove(path))
		counts(t, k, s.Resource(), 0, 0)
	}
	l := listen()
	defer l.Close()
	counts(t, k, s.Resource(), 5, 0)
	answer, err := k.Allocate(t.Context(), s.Resource(), []string{"pr-helper0"})
	must(t, err)
	if m := answer[0].GetMounts(); len(m) != 1 || m[0].GetHostPath() != filepath.Dir(path) || !m[0].GetReadOnly() || len(answer[0].GetDevices()) != 0 {
		t.Errorf("%v", answer[0])
	}
	must(t, os.RemoveAll(filepath.Dir(path)))
	counts(t, k, s.Resource(), 0, 0)
}

// On this machine what can be opened by hand is offered, and given.
func TestRealKVM(t *testing.T) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	f.Close()
	n := NewNode(contract.ResourceKVM, "kvm", sysfs.Roots{}, DefaultCount, "")
	k := offer(t, n)
	counts(t, k, n.Resource(), DefaultCount, 0)
	answer, err := k.Allocate(t.Context(), n.Resource(), []string{"kvm999"})
	must(t, err)
	f, err = os.OpenFile(answer[0].GetDevices()[0].GetHostPath(), os.O_RDWR, 0)
	must(t, err)
	f.Close()
}
