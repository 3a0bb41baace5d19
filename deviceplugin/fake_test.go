package deviceplugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kubelettest"
	"github.com/vmlet/vmlet/internal/inotify"
	"github.com/vmlet/vmlet/test/suites"
)

// patience is long: it only ends a test that has failed.
const patience = 30 * time.Second

// fakeKind has the devices that a test sets. The file is changed so that it is
// asked again.
type fakeKind struct {
	resource, file string

	mu   sync.Mutex
	find func(ctx context.Context) []deviceplugin.Device
}

func newFakeKind(t *testing.T, resource string, devices ...deviceplugin.Device) *fakeKind {
	k := &fakeKind{resource: resource, file: filepath.Join(t.TempDir(), "kind")}
	k.set(t, devices...)
	return k
}

func (k *fakeKind) Resource() string { return k.resource }

func (k *fakeKind) Interests() []inotify.Interest {
	return []inotify.Interest{{Path: k.file, Written: true}}
}

func (k *fakeKind) Find(ctx context.Context) []deviceplugin.Device {
	k.mu.Lock()
	find := k.find
	k.mu.Unlock()
	return find(ctx)
}

func (k *fakeKind) set(t *testing.T, devices ...deviceplugin.Device) {
	k.setFind(t, func(context.Context) []deviceplugin.Device { return devices })
}

func (k *fakeKind) setFind(t *testing.T, find func(context.Context) []deviceplugin.Device) {
	t.Helper()
	k.mu.Lock()
	k.find = find
	k.mu.Unlock()
	if err := os.WriteFile(k.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// devices are n of them that give /dev/null.
func devices(n int) []deviceplugin.Device {
	g := &deviceplugin.Grant{Nodes: []string{"/dev/null"}}
	all := make([]deviceplugin.Device, n)
	for i := range all {
		all[i] = deviceplugin.Device{ID: fmt.Sprintf("d%d", i), Grant: g}
	}
	return all
}

// node is a kubelet, and a manager beside it.
type node struct {
	t       *testing.T
	folder  string
	kubelet *kubelettest.Kubelet
	manager *deviceplugin.Manager
	// end ends the manager and waits for it.
	end func()
}

// newNode runs a manager, and no kubelet yet.
func newNode(t *testing.T, kinds ...deviceplugin.Kind) *node {
	t.Helper()
	// Below /tmp itself: a socket's path must be short.
	folder, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	n := &node{t: t, folder: filepath.Join(folder, "device-plugins")}
	n.kubelet = kubelettest.New(n.folder)
	t.Cleanup(n.kubelet.Stop)
	n.manager, n.end = runManager(t, n.folder, kinds...)
	t.Cleanup(func() {
		if !t.Failed() && len(n.kubelet.Faults()) > 0 {
			t.Errorf("faults: %q", n.kubelet.Faults())
		}
	})
	return n
}

func runManager(t *testing.T, folder string, kinds ...deviceplugin.Kind) (*deviceplugin.Manager, func()) {
	t.Helper()
	return runConfig(t, deviceplugin.Config{Folder: folder}, kinds...)
}

func runConfig(t *testing.T, cfg deviceplugin.Config, kinds ...deviceplugin.Kind) (*deviceplugin.Manager, func()) {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	m, err := deviceplugin.NewManager(cfg, kinds)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		m.Run(ctx)
		close(done)
	}()
	end := func() {
		cancel()
		select {
		case <-done:
		case <-suites.After(t, patience):
			t.Error("the manager doesn't end")
		}
	}
	t.Cleanup(end)
	return m, end
}

func (n *node) start() {
	n.t.Helper()
	if err := n.kubelet.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) ctx() context.Context {
	ctx, cancel := suites.Patience(context.Background(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) wait(resource string, wanted func(kubelettest.Resource) bool) kubelettest.Resource {
	n.t.Helper()
	r, err := n.kubelet.Wait(n.ctx(), resource, wanted)
	if err != nil {
		n.t.Fatalf("%v; the manager says %+v", err, n.manager.Status())
	}
	return r
}

// counts waits for so many devices of a registered resource.
func (n *node) counts(resource string, healthy, unhealthy int) kubelettest.Resource {
	n.t.Helper()
	return n.wait(resource, func(r kubelettest.Resource) bool {
		return r.Registered && len(r.Healthy) == healthy && len(r.Unhealthy) == unhealthy
	})
}

// allocated asks for a device until it is given: a kubelet that hears late of an
// earlier socket's end drops the new registration, too, and is registered with anew.
func (n *node) allocated(device string) {
	n.t.Helper()
	ctx := n.ctx()
	for {
		_, err := n.kubelet.Allocate(ctx, resource, []string{device})
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			n.t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

// sockets are those in the kubelet's folder that aren't its own.
func (n *node) sockets() []string {
	n.t.Helper()
	paths, err := filepath.Glob(filepath.Join(n.folder, "*.sock"))
	if err != nil {
		n.t.Fatal(err)
	}
	var own []string
	for _, p := range paths {
		if !strings.HasSuffix(p, "kubelet.sock") {
			own = append(own, p)
		}
	}
	return own
}
