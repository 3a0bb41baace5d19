package vm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// TestAdopt loses the agent, lets something happen, and starts another.
func TestAdopt(t *testing.T) {
	dirOf := func(w *world) string { return filepath.Join(w.StateDir, "..", "image") }
	for _, c := range []struct {
		name string
		// meanwhile happens while no agent is there.
		meanwhile func(w *world, p *vmtest.Proc, a *testAgent)
		want      lifecycle.State
		held      bool // something of the host
	}{
		{"nothing", func(*world, *vmtest.Proc, *testAgent) {}, lifecycle.Running, true},
		{"paused", func(_ *world, p *vmtest.Proc, _ *testAgent) { p.Paused = true }, lifecycle.Paused, true},
		{"shut down", func(_ *world, p *vmtest.Proc, _ *testAgent) { p.End(&shim.Exit{Reason: shim.ReasonShutdown}) }, lifecycle.Stopped, false},
		{"crashed", func(_ *world, p *vmtest.Proc, _ *testAgent) { p.End(&shim.Exit{Reason: shim.ReasonCrashed}) }, lifecycle.Crashed, false},
		{"shim killed", func(_ *world, p *vmtest.Proc, _ *testAgent) { p.End(nil) }, lifecycle.Crashed, false},
		{"an old exit", func(_ *world, p *vmtest.Proc, _ *testAgent) {
			p.Options.RunID = "another"
			p.End(&shim.Exit{Reason: shim.ReasonShutdown})
		}, lifecycle.Crashed, false},
		{"reboot", func(w *world, p *vmtest.Proc, _ *testAgent) {
			p.End(nil)
			w.reboot()
		}, lifecycle.Stopped, false},
		{"saving, not committed", func(_ *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, nil)
		}, lifecycle.Running, true},
		{"saving, committed", func(w *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, &nodev1.ImageReference{Path: dirOf(w), ImageId: "image-1"})
			p.End(&shim.Exit{Reason: shim.ReasonSaved, ImageDirectory: dirOf(w), ImageID: "image-1"})
		}, lifecycle.Saved, false},
		{"saving, committed, power cut", func(w *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, &nodev1.ImageReference{Path: dirOf(w), ImageId: "image-1"})
			l, err := place.ReadLease(filepath.Join(w.RunDir, "vms/web"))
			if err == nil {
				err = vmtest.WriteImage(dirOf(w), l.Manifest, "image-1")
			}
			if err != nil {
				t.Fatal(err)
			}
			p.End(nil)
			w.reboot()
		}, lifecycle.Saved, false},
		{"saving, not committed, power cut", func(w *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, &nodev1.ImageReference{Path: dirOf(w), ImageId: "image-1"})
			p.End(nil)
			w.reboot()
		}, lifecycle.Stopped, false},
		{"starting, launched", func(_ *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Starting, nil)
		}, lifecycle.Running, true},
		{"starting, launched, shut down", func(_ *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Restoring, &nodev1.ImageReference{Path: "/image", ImageId: "image-1"})
			p.End(&shim.Exit{Reason: shim.ReasonShutdown})
		}, lifecycle.Stopped, false},
		{"starting, given up", func(_ *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Restoring, &nodev1.ImageReference{Path: "/image", ImageId: "image-1"})
			p.End(&shim.Exit{Reason: shim.ReasonFailed})
		}, lifecycle.Saved, false},
		{"starting, not launched", func(w *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Starting, nil)
			w.Drop("memory /ram/web")
			p.Launched = nil
		}, lifecycle.Stopped, false},
		{"starting, launched just now", func(w *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Starting, nil)
			launched := p.Launched
			p.Launched = nil
			w.Hooks["release"] = func() {
				p.Mu.Lock()
				defer p.Mu.Unlock()
				p.Launched = launched
			}
		}, lifecycle.Running, true},
		{"restoring, not launched", func(w *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Restoring, &nodev1.ImageReference{Path: "/image", ImageId: "image-1"})
			w.Drop("memory /ram/web")
			p.Launched = nil
		}, lifecycle.Saved, false},
		{"started, record old", func(_ *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Created, nil)
		}, lifecycle.Running, true},
		{"lease lost", func(w *world, _ *vmtest.Proc, _ *testAgent) {
			if err := os.WriteFile(filepath.Join(w.RunDir, "vms/web", place.LeaseName), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, lifecycle.Crashed, true},
		{"shim about to end", func(_ *world, p *vmtest.Proc, _ *testAgent) {
			p.Deaf = true
			p.W.Hooks["dial"] = func() { go p.End(&shim.Exit{Reason: shim.ReasonShutdown}) }
		}, lifecycle.Stopped, false},
		{"shim deaf", func(_ *world, p *vmtest.Proc, _ *testAgent) { p.Deaf = true }, lifecycle.Crashed, true},
		{"stopping", func(_ *world, p *vmtest.Proc, a *testAgent) {
			a.keep(t, "web", lifecycle.Stopping, nil)
			p.End(&shim.Exit{Reason: shim.ReasonKilled, GraceOver: true})
		}, lifecycle.Stopped, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a := withRunning(t)
			a.end()
			p := w.Proc("web")
			c.meanwhile(w, p, a)
			b := w.start()
			b.wantState(t, "web", c.want)
			if !c.held {
				w.WantNothingHeld(t)
				return
			}
			if got := w.Proc("web"); got != p || !p.Alive() {
				t.Error("the VM did not survive")
			}
			if c.want == lifecycle.Crashed {
				_, err := b.Manager.Start(t.Context(), "web", StartOptions{}, nil)
				vmtest.WantCode(t, "start beside a deaf shim", err, codes.FailedPrecondition)
				vmtest.WantCode(t, "delete beside a deaf shim", b.Delete(t.Context(), "web"), codes.FailedPrecondition)
			}
			if _, err := b.Kill(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
			b.wantState(t, "web", lifecycle.Stopped)
			if held := w.Holding(); c.want != lifecycle.Crashed && len(held) > 0 {
				t.Errorf("still held: %q", held)
			}
			b.mustStart(t, "web")
		})
	}
}

// keep writes a record as a lost agent may have left it.
func (a *testAgent) keep(t *testing.T, name string, s lifecycle.State, image *nodev1.ImageReference) {
	t.Helper()
	vm, err := a.store.Load(name)
	if err == nil {
		vm.Status.State, vm.Status.Image = s, image
		if s == lifecycle.Created {
			vm.Status = &nodev1.VirtualMachineStatus{State: s}
		}
		err = a.store.Save(vm)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reboot loses what does not survive one.
func (w *world) reboot() {
	w.BootID = "boot-2"
	os.RemoveAll(w.RunDir)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Procs = make(map[string]*vmtest.Proc)
	// Access lists of files are all that stays.
	maps.DeleteFunc(w.Held, func(what string, _ bool) bool { return !strings.HasPrefix(what, "file ") })
}

// TestObservedAtOnce: nobody sees a VM that was found paused without why it is.
func TestObservedAtOnce(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	m := newVM("web", nil, &nodev1.VirtualMachine{Status: &nodev1.VirtualMachineStatus{}}, a.Registry.hub, a.Registry.followers, a.Registry.log)
	ad := &adoption{Adopter: a.Adopter, m: m}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 1000 {
			ad.observe(lifecycle.Running, "it runs")
			ad.observe(lifecycle.Paused, "no space", pause{reason: byDisk}.note)
		}
	}()
	for {
		select {
		case <-over:
			return
		default:
		}
		if s := m.Snapshot().GetStatus(); s.GetState() == lifecycle.Paused && s.GetPauseReason() != byDisk {
			t.Fatalf("paused for %s", s.GetPauseReason())
		}
	}
}

// TestAdoptBroken lists what can't be read, and the others all the same.
func TestAdoptBroken(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "good")
	a.mustCreate(t, "bad")
	a.end()
	path := filepath.Join(w.StateDir, "vms/bad/vm.json")
	if err := os.WriteFile(path, []byte(`{"id": "x", "sp`), 0o600); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(w.StateDir, "vms/half")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	b := w.start()
	if got := len(b.All()); got != 2 {
		t.Errorf("%d VMs, want 2", got)
	}
	b.wantState(t, "good", lifecycle.Created)
	_, err := b.Manager.Start(t.Context(), "bad", StartOptions{}, nil)
	vmtest.WantCode(t, "start", err, codes.FailedPrecondition)
	if err := b.Delete(t.Context(), "bad"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("a folder without a record is left: %v", err)
	}
}

// TestOrphan keeps what a shim has whose VM's record is gone.
func TestOrphan(t *testing.T) {
	w, a := withRunning(t)
	a.end()
	w.Drop("user 1000") // only a new agent's own count matters
	if err := os.RemoveAll(filepath.Join(w.StateDir, "vms/web")); err != nil {
		t.Fatal(err)
	}
	b := w.start()
	b.mustCreate(t, "other")
	b.mustStart(t, "other")
	m, _ := b.Get(t.Context(), "other")
	if got := m.Snapshot().GetStatus().GetProcess().GetUid(); got == 1000 {
		t.Errorf("another VM has the orphan's user id %d", got)
	}
}

// TestAdoptMany adopts a node full of VMs.
func TestAdoptMany(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	const many = 100
	for i := range many {
		name := fmt.Sprintf("vm-%d", i)
		a.mustCreate(t, name)
		a.mustStart(t, name)
	}
	a.end()
	b := w.start()
	for i := range many {
		b.wantState(t, fmt.Sprintf("vm-%d", i), lifecycle.Running)
	}
}
