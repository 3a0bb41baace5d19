package deviceplugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kubelettest"
)

const resource = "devices.example.org/thing"

func registeredAgain(times int) func(kubelettest.Resource) bool {
	return func(r kubelettest.Resource) bool {
		return r.Registered && len(r.Healthy) > 0 && r.Registrations >= times
	}
}

func TestKubeletRestarts(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...), newFakeKind(t, "example.org/other", devices(1)...))
	for range 21 {
		n.start()
		n.counts(resource, 3, 0)
		n.counts("example.org/other", 1, 0)
		n.kubelet.Stop()
	}
	if got := n.kubelet.Resource(resource).Registrations; got < 21 {
		t.Errorf("%d registrations, want 21", got)
	}
}

// A kubelet that starts anew while the old one's connections are still there.
func TestKubeletReplaced(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	n.start()
	n.counts(resource, 3, 0)
	second := kubelettest.New(n.folder)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Stop)
	if _, err := second.Wait(n.ctx(), resource, registeredAgain(1)); err != nil {
		t.Fatal(err)
	}
}

func TestFolderWiped(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	n.start()
	n.counts(resource, 3, 0)
	for range 5 {
		before := n.kubelet.Resource(resource).Registrations
		if err := n.kubelet.WipePlugins(); err != nil {
			t.Fatal(err)
		}
		n.wait(resource, registeredAgain(before+1))
		n.allocated("d0")
	}
}

// The kubelet takes the socket away while it is asked to register it, and then
// looks for it for long.
func TestWipedWhileRegistering(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	n.kubelet.Slow(200 * time.Millisecond)
	n.start()
	for len(n.sockets()) == 0 {
		time.Sleep(time.Millisecond)
	}
	wiped := n.sockets()[0]
	if err := n.kubelet.WipePlugins(); err != nil {
		t.Fatal(err)
	}
	// It is given up before the kubelet does: that would be a fault.
	for sockets := n.sockets(); len(sockets) == 0 || sockets[0] == wiped; sockets = n.sockets() {
		time.Sleep(time.Millisecond)
	}
	n.counts(resource, 3, 0)
}

// The folder itself goes with all that is in it, as when a node is reset.
func TestFolderRemoved(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	for range 3 {
		n.start()
		n.counts(resource, 3, 0)
		n.kubelet.Stop()
		if err := os.RemoveAll(n.folder); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStreamBroken(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	n.start()
	for i := range 5 {
		n.wait(resource, registeredAgain(i+1))
		n.kubelet.BreakStream(resource)
		n.wait(resource, registeredAgain(i+2))
	}
}

func TestKubeletSlow(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	n.kubelet.Slow(700 * time.Millisecond)
	n.start()
	n.counts(resource, 3, 0)
}

// A kubelet's socket that nobody listens on yet.
func TestKubeletNotReady(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(n.folder, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for n.manager.Status()[0].Err == nil {
		time.Sleep(time.Millisecond)
	}
	n.start()
	n.counts(resource, 3, 0)
}

func TestAppearsAndGoes(t *testing.T) {
	k := newFakeKind(t, resource)
	n := newNode(t, k, newFakeKind(t, "example.org/other", devices(1)...))
	n.start()
	n.counts("example.org/other", 1, 0)
	if r := n.kubelet.Resource(resource); r.Registrations != 0 {
		t.Error("a resource that isn't there is registered")
	}
	k.set(t, devices(2)...)
	n.counts(resource, 2, 0)
	ill := devices(2)
	ill[1].Obstacle = "it is ill"
	k.set(t, ill...)
	n.counts(resource, 1, 1)
	if _, err := n.kubelet.Allocate(n.ctx(), resource, []string{"d1"}); err == nil || !strings.Contains(err.Error(), "it is ill") {
		t.Errorf("%v", err)
	}
	k.set(t)
	n.counts(resource, 0, 0)
	k.set(t, devices(4)...)
	n.counts(resource, 4, 0)
	k.set(t)
	n.counts(resource, 0, 0)
	// Gone, and the kubelet starts anew: nobody offers it.
	n.kubelet.Stop()
	before := n.kubelet.Resource(resource).Registrations
	n.start()
	n.counts("example.org/other", 1, 0)
	if r := n.kubelet.Resource(resource); r.Registrations != before {
		t.Error("a resource that isn't there any more is registered")
	}
	k.set(t, devices(4)...)
	n.counts(resource, 4, 0)
}

// What goes wrong with one kind is nothing to the others.
func TestOneFails(t *testing.T) {
	panics := newFakeKind(t, "example.org/panics", devices(2)...)
	hangs := newFakeKind(t, "example.org/hangs")
	hangs.setFind(t, func(ctx context.Context) []deviceplugin.Device { <-ctx.Done(); return nil })
	bad := newFakeKind(t, "example.org/bad",
		append(devices(1), deviceplugin.Device{ID: strings.Repeat("x", 64), Grant: &deviceplugin.Grant{}},
			deviceplugin.Device{ID: "d0", Grant: &deviceplugin.Grant{}}, deviceplugin.Device{ID: "nothing"})...)
	good := newFakeKind(t, resource, devices(3)...)
	n := newNode(t, panics, hangs, bad, good)
	n.start()
	n.counts("example.org/panics", 2, 0)
	panics.setFind(t, func(context.Context) []deviceplugin.Device { panic("a fault") })
	n.counts("example.org/panics", 0, 2)
	n.counts("example.org/bad", 1, 0)
	n.counts(resource, 3, 0)
	good.set(t, devices(4)...)
	n.counts(resource, 4, 0)
	panics.set(t, devices(2)...)
	n.counts("example.org/panics", 2, 0)
}

// A device that can't be used is looked at again, though nothing tells.
func TestHealsByItself(t *testing.T) {
	k := newFakeKind(t, resource)
	looks := 0
	k.setFind(t, func(context.Context) []deviceplugin.Device {
		d := devices(1)
		if looks++; looks < 4 {
			d[0].Obstacle = "not yet"
		}
		return d
	})
	n := newNode(t, k)
	n.start()
	n.counts(resource, 1, 0)
}

// Some changes no file tells of; somebody else may.
func TestToldToLook(t *testing.T) {
	n := newNode(t)
	n.start()
	k := newFakeKind(t, resource)
	found := make(chan struct{})
	k.setFind(t, func(context.Context) []deviceplugin.Device {
		select {
		case <-found:
			return devices(2)
		default:
			return nil
		}
	})
	changes := make(chan struct{}, 1)
	runConfig(t, deviceplugin.Config{Folder: n.folder, Changes: changes}, k)
	close(found)
	changes <- struct{}{}
	n.counts(resource, 2, 0)
}

// An agent is replaced by another, without a moment in which there is none: the
// real kubelet drops the new one when the old one goes.
func TestAgentReplaced(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(3)...))
	n.start()
	n.counts(resource, 3, 0)
	runManager(t, n.folder, newFakeKind(t, resource, devices(5)...))
	n.counts(resource, 5, 0)
	n.end()
	// What is counted may still be from before the kubelet dropped both.
	n.wait(resource, func(r kubelettest.Resource) bool {
		return r.Registered && len(r.Healthy) == 5 && len(n.sockets()) == 1
	})
}

// What a killed agent leaves is removed; what belongs to others isn't.
func TestSweep(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "[a*")
	if err := deviceplugin.Sweep(folder); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vmlet-kvm-00000000.sock", "vmlet-kvm.socket", "other.sock"} {
		l, err := net.Listen("unix", filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	live, err := net.Listen("unix", filepath.Join(folder, "vmlet-kvm-00000001.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := deviceplugin.Sweep(folder); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(folder)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if want := []string{"other.sock", "vmlet-kvm-00000001.sock", "vmlet-kvm.socket"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, want %q (%v)", names, want, err)
	}
}

// open is how many descriptors and goroutines there are.
func open(t *testing.T) (fds, goroutines int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), runtime.NumGoroutine()
}

func TestNothingIsLeft(t *testing.T) {
	once := func() {
		n := newNode(t, newFakeKind(t, resource, devices(100)...), newFakeKind(t, "example.org/none"))
		for range 3 {
			n.start()
			n.counts(resource, 100, 0)
			n.kubelet.Stop()
		}
		n.start()
		n.counts(resource, 100, 0)
		n.end()
		if left := n.sockets(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		n.wait(resource, func(r kubelettest.Resource) bool { return !r.Registered })
		n.kubelet.Stop()
	}
	once() // what the runtime keeps for itself is there from now on
	fds, goroutines := open(t)
	for range 5 {
		once()
	}
	deadline := time.Now().Add(patience)
	for {
		f, g := open(t)
		if f <= fds && g <= goroutines {
			return
		}
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d descriptors, were %d; %d goroutines, were %d:\n%s", f, fds, g, goroutines, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestNewManager(t *testing.T) {
	for name, c := range map[string]struct {
		folder string
		kinds  []deviceplugin.Kind
		want   string
	}{
		"relative":   {folder: "plugins", want: "absolute"},
		"too long":   {folder: "/" + strings.Repeat("x", 80), want: "too long"},
		"twice":      {kinds: []deviceplugin.Kind{newFakeKind(t, resource), newFakeKind(t, resource)}, want: "twice"},
		"no domain":  {kinds: []deviceplugin.Kind{newFakeKind(t, "kvm")}, want: "DOMAIN/NAME"},
		"Kubernetes": {kinds: []deviceplugin.Kind{newFakeKind(t, "a.kubernetes.io/kvm")}, want: "Kubernetes' own"},
		"quota":      {kinds: []deviceplugin.Kind{newFakeKind(t, "requests.org/kvm")}, want: "requests."},
		"long name":  {kinds: []deviceplugin.Kind{newFakeKind(t, "a.org/"+strings.Repeat("x", 64))}, want: "DOMAIN/NAME"},
		"long":       {kinds: []deviceplugin.Kind{newFakeKind(t, strings.Repeat("a.", 125)+"org/x")}, want: "DOMAIN/NAME"},
	} {
		_, err := deviceplugin.NewManager(deviceplugin.Config{Folder: c.folder}, c.kinds)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
