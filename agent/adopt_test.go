package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// TestAdopt loses the agent, lets something happen, and starts another.
func TestAdopt(t *testing.T) {
	dirOf := func(w *world) string { return filepath.Join(w.stateDir, "..", "image") }
	for _, c := range []struct {
		name string
		// meanwhile happens while no agent is there.
		meanwhile func(w *world, p *fakeProc, a *testAgent)
		want      lifecycle.State
		held      bool // something of the host
	}{
		{"nothing", func(*world, *fakeProc, *testAgent) {}, lifecycle.Running, true},
		{"paused", func(_ *world, p *fakeProc, _ *testAgent) { p.paused = true }, lifecycle.Paused, true},
		{"shut down", func(_ *world, p *fakeProc, _ *testAgent) { p.end(&shim.Exit{Reason: shim.ReasonShutdown}) }, lifecycle.Stopped, false},
		{"crashed", func(_ *world, p *fakeProc, _ *testAgent) { p.end(&shim.Exit{Reason: shim.ReasonCrashed}) }, lifecycle.Crashed, false},
		{"shim killed", func(_ *world, p *fakeProc, _ *testAgent) { p.end(nil) }, lifecycle.Crashed, false},
		{"an old exit", func(_ *world, p *fakeProc, _ *testAgent) {
			p.options.RunID = "another"
			p.end(&shim.Exit{Reason: shim.ReasonShutdown})
		}, lifecycle.Crashed, false},
		{"reboot", func(w *world, p *fakeProc, _ *testAgent) {
			p.end(nil)
			w.reboot()
		}, lifecycle.Stopped, false},
		{"saving, not committed", func(_ *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, nil)
		}, lifecycle.Running, true},
		{"saving, committed", func(w *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, &nodev1.ImageReference{Path: dirOf(w), ImageId: "image-1"})
			p.end(&shim.Exit{Reason: shim.ReasonSaved, ImageDirectory: dirOf(w), ImageID: "image-1"})
		}, lifecycle.Saved, false},
		{"saving, committed, power cut", func(w *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, &nodev1.ImageReference{Path: dirOf(w), ImageId: "image-1"})
			l, err := ReadLease(filepath.Join(w.runDir, "vms/web"))
			if err == nil {
				err = writeImage(dirOf(w), l.Manifest, "image-1")
			}
			if err != nil {
				t.Fatal(err)
			}
			p.end(nil)
			w.reboot()
		}, lifecycle.Saved, false},
		{"saving, not committed, power cut", func(w *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Saving, &nodev1.ImageReference{Path: dirOf(w), ImageId: "image-1"})
			p.end(nil)
			w.reboot()
		}, lifecycle.Stopped, false},
		{"starting, launched", func(_ *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Starting, nil)
		}, lifecycle.Running, true},
		{"starting, launched, shut down", func(_ *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Restoring, &nodev1.ImageReference{Path: "/image", ImageId: "image-1"})
			p.end(&shim.Exit{Reason: shim.ReasonShutdown})
		}, lifecycle.Stopped, false},
		{"starting, given up", func(_ *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Restoring, &nodev1.ImageReference{Path: "/image", ImageId: "image-1"})
			p.end(&shim.Exit{Reason: shim.ReasonFailed})
		}, lifecycle.Saved, false},
		{"starting, not launched", func(w *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Starting, nil)
			w.drop("memory /ram/web")
			p.launched = nil
		}, lifecycle.Stopped, false},
		{"starting, launched just now", func(w *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Starting, nil)
			launched := p.launched
			p.launched = nil
			w.hooks["release"] = func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.launched = launched
			}
		}, lifecycle.Running, true},
		{"restoring, not launched", func(w *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Restoring, &nodev1.ImageReference{Path: "/image", ImageId: "image-1"})
			w.drop("memory /ram/web")
			p.launched = nil
		}, lifecycle.Saved, false},
		{"started, record old", func(_ *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Created, nil)
		}, lifecycle.Running, true},
		{"lease lost", func(w *world, _ *fakeProc, _ *testAgent) {
			if err := os.WriteFile(filepath.Join(w.runDir, "vms/web", LeaseName), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, lifecycle.Crashed, true},
		{"shim about to end", func(_ *world, p *fakeProc, _ *testAgent) {
			p.deaf = true
			p.w.hooks["dial"] = func() { go p.end(&shim.Exit{Reason: shim.ReasonShutdown}) }
		}, lifecycle.Stopped, false},
		{"shim deaf", func(_ *world, p *fakeProc, _ *testAgent) { p.deaf = true }, lifecycle.Crashed, true},
		{"stopping", func(_ *world, p *fakeProc, a *testAgent) {
			a.keep(t, "web", lifecycle.Stopping, nil)
			p.end(&shim.Exit{Reason: shim.ReasonKilled, GraceOver: true})
		}, lifecycle.Stopped, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a := withRunning(t)
			a.end()
			p := w.proc("web")
			c.meanwhile(w, p, a)
			b := w.start()
			b.wantState(t, "web", c.want)
			if !c.held {
				w.wantNothingHeld(t)
				return
			}
			if got := w.proc("web"); got != p || !p.alive() {
				t.Error("the VM did not survive")
			}
			if c.want == lifecycle.Crashed {
				_, err := b.Manager.start(t.Context(), "web", startOptions{}, nil)
				wantCode(t, "start beside a deaf shim", err, codes.FailedPrecondition)
				wantCode(t, "delete beside a deaf shim", b.delete(t.Context(), "web"), codes.FailedPrecondition)
			}
			if _, err := b.kill(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
			b.wantState(t, "web", lifecycle.Stopped)
			if held := w.holding(); c.want != lifecycle.Crashed && len(held) > 0 {
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
	w.bootID = "boot-2"
	os.RemoveAll(w.runDir)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.procs = make(map[string]*fakeProc)
	// Access lists of files are all that stays.
	maps.DeleteFunc(w.held, func(what string, _ bool) bool { return !strings.HasPrefix(what, "file ") })
}

// TestAdoptBroken lists what can't be read, and the others all the same.
func TestAdoptBroken(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "good")
	a.mustCreate(t, "bad")
	a.end()
	path := filepath.Join(w.stateDir, "vms/bad/vm.json")
	if err := os.WriteFile(path, []byte(`{"id": "x", "sp`), 0o600); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(w.stateDir, "vms/half")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	b := w.start()
	if got := len(b.All()); got != 2 {
		t.Errorf("%d VMs, want 2", got)
	}
	b.wantState(t, "good", lifecycle.Created)
	_, err := b.Manager.start(t.Context(), "bad", startOptions{}, nil)
	wantCode(t, "start", err, codes.FailedPrecondition)
	if err := b.delete(t.Context(), "bad"); err != nil {
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
	w.drop("user 1000") // only a new agent's own count matters
	if err := os.RemoveAll(filepath.Join(w.stateDir, "vms/web")); err != nil {
		t.Fatal(err)
	}
	b := w.start()
	b.mustCreate(t, "other")
	b.mustStart(t, "other")
	m, _ := b.Get("other")
	if got := m.snapshot().GetStatus().GetProcess().GetUid(); got == 1000 {
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
