package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

func (a *testAgent) mustCreate(t *testing.T, name string) {
	t.Helper()
	if _, err := a.Create(t.Context(), vmtest.Spec(name)); err != nil {
		t.Fatal(err)
	}
}

func (a *testAgent) mustStart(t *testing.T, name string) {
	t.Helper()
	if _, err := a.Manager.Start(t.Context(), name, StartOptions{}, nil); err != nil {
		t.Fatal(err)
	}
}

// withRunning is an agent whose VM "web" runs.
func withRunning(t *testing.T) (*world, *testAgent) {
	t.Helper()
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	a.mustStart(t, "web")
	return w, a
}

func (a *testAgent) wantState(t *testing.T, name string, want lifecycle.State) {
	t.Helper()
	m, err := a.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.State(); got != want {
		t.Errorf("vm %s is %s (%s), want %s", name, lifecycle.Name(got), m.Snapshot().GetStatus().GetMessage(), lifecycle.Name(want))
	}
	if want == lifecycle.Starting || want == lifecycle.Restoring {
		return
	}
	kept, err := a.store.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := kept.GetStatus().GetState(); got != want {
		t.Errorf("vm %s is kept as %s, want %s", name, lifecycle.Name(got), lifecycle.Name(want))
	}
}

// waitForState waits for what the watch is about to note.
func (a *testAgent) waitForState(t *testing.T, name string, want lifecycle.State) {
	t.Helper()
	sub := a.hub.Subscribe(name, history, history)
	defer sub.Close()
	for {
		for _, item := range sub.Take() {
			if item.Event.GetType() == "state" && item.Event.GetState() == want {
				return
			}
		}
		select {
		case <-sub.Ready():
		case <-t.Context().Done():
			t.Fatalf("vm %s does not become %s", name, lifecycle.Name(want))
		}
	}
}

// TestLife goes through what a user does, in order.
func TestLife(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	ctx := t.Context()
	second := 5 * time.Second
	steps := []struct {
		name string
		do   func() error
		code codes.Code
		want lifecycle.State // 0: there is no VM
	}{
		{"start of none", func() error { _, err := a.Manager.Start(ctx, "web", StartOptions{}, nil); return err }, codes.NotFound, 0},
		{"create without a name", func() error { _, err := a.Create(ctx, &specv1.VirtualMachineSpec{}); return err }, codes.InvalidArgument, 0},
		{"create", func() error { _, err := a.Create(ctx, vmtest.Spec("web")); return err }, codes.OK, lifecycle.Created},
		{"create the same", func() error { _, err := a.Create(ctx, vmtest.Spec("web")); return err }, codes.OK, lifecycle.Created},
		{"create another", func() error {
			s := vmtest.Spec("web")
			s.Labels = nil
			_, err := a.Create(ctx, s)
			return err
		}, codes.AlreadyExists, lifecycle.Created},
		{"pause what is not there", func() error { _, err := a.Pause(ctx, "web"); return err }, codes.FailedPrecondition, lifecycle.Created},
		{"stop what never ran", func() error { _, _, err := a.Stop(ctx, "web", nil); return err }, codes.OK, lifecycle.Created},
		{"save what never ran", func() error {
			_, _, err := a.Save(ctx, "web", place.SaveOptions{Directory: "/nowhere"}, nil)
			return err
		}, codes.FailedPrecondition, lifecycle.Created},
		{"start", func() error { _, err := a.Manager.Start(ctx, "web", StartOptions{}, nil); return err }, codes.OK, lifecycle.Running},
		{"start again", func() error { _, err := a.Manager.Start(ctx, "web", StartOptions{}, nil); return err }, codes.FailedPrecondition, lifecycle.Running},
		{"delete while it runs", func() error { return a.Delete(ctx, "web") }, codes.FailedPrecondition, lifecycle.Running},
		{"resume what runs", func() error { _, err := a.Resume(ctx, "web", false); return err }, codes.OK, lifecycle.Running},
		{"pause", func() error { _, err := a.Pause(ctx, "web"); return err }, codes.OK, lifecycle.Paused},
		{"pause again", func() error { _, err := a.Pause(ctx, "web"); return err }, codes.OK, lifecycle.Paused},
		{"reset", func() error { _, err := a.Reset(ctx, "web"); return err }, codes.OK, lifecycle.Paused},
		{"stop", func() error {
			_, killed, err := a.Stop(ctx, "web", &second)
			if killed {
				t.Error("a paused guest was killed instead of resumed and stopped")
			}
			return err
		}, codes.OK, lifecycle.Stopped},
		{"stop again", func() error { _, _, err := a.Stop(ctx, "web", nil); return err }, codes.OK, lifecycle.Stopped},
		{"kill what is stopped", func() error { _, err := a.Kill(ctx, "web"); return err }, codes.OK, lifecycle.Stopped},
		{"start paused", func() error { _, err := a.Manager.Start(ctx, "web", StartOptions{Paused: true}, nil); return err }, codes.OK, lifecycle.Paused},
		{"kill", func() error { _, err := a.Kill(ctx, "web"); return err }, codes.OK, lifecycle.Stopped},
		{"delete", func() error { return a.Delete(ctx, "web") }, codes.OK, 0},
		{"delete again", func() error { return a.Delete(ctx, "web") }, codes.NotFound, 0},
	}
	for _, step := range steps {
		vmtest.WantCode(t, step.name, step.do(), step.code)
		if step.want != 0 {
			a.wantState(t, "web", step.want)
		}
	}
	w.WantNothingHeld(t)
	if left, _ := a.store.Names(); len(left) > 0 {
		t.Errorf("folders are left: %v", left)
	}
}

// TestStartTakesItselfBack fails every step of a start, and of a restore.
func TestStartTakesItselfBack(t *testing.T) {
	for _, step := range []string{
		"info", "user", "memory path", "plan", "manifest", "cgroup", "device", "tap", "shim", "join", "launch", "connect", "status",
	} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			a := w.start()
			a.mustCreate(t, "web")
			broken := errors.New("broken")
			w.FailStep(step, broken)
			_, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil)
			if !errors.Is(err, broken) {
				t.Fatalf("start: %v", err)
			}
			a.wantState(t, "web", lifecycle.Created)
			w.WantNothingHeld(t)
			w.FailStep(step, nil)
			a.mustStart(t, "web")
			a.wantState(t, "web", lifecycle.Running)
			if _, err := a.Kill(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
			w.WantNothingHeld(t)
		})
	}
}

// TestStartOutsideItsCgroup: that a VM is not in its cgroup is written down before its VMM
// runs, so that the next search covers all processes.
func TestStartOutsideItsCgroup(t *testing.T) {
	w := newWorld(t)
	w.Held["no cgroup can be joined"] = true
	a := w.start()
	a.mustCreate(t, "web")
	w.Hooks["launch"] = func() {
		l, err := place.ReadLease(a.store.RunDir("web"))
		if err != nil {
			t.Error(err)
			return
		}
		if !l.Outside || len(l.Searched().Paths) > 0 || l.Cgroup.Path() == "" {
			t.Errorf("the lease has outside %t, cgroup %+v", l.Outside, l.Cgroup)
		}
	}
	a.mustStart(t, "web")
	if len(w.Hooks) > 0 {
		t.Error("nothing was launched")
	}
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Snapshot().GetStatus().GetProcess().GetCgroup(); got != "" {
		t.Errorf("its cgroup is %s, want none", got)
	}
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	w.Drop("no cgroup can be joined")
	w.WantNothingHeld(t)
}

func TestStartOfCallerThatGoes(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Manager.Start(ctx, "web", StartOptions{}, nil)
	vmtest.WantCode(t, "start", err, codes.Canceled)
	a.wantState(t, "web", lifecycle.Created)
	w.WantNothingHeld(t)
}

// TestEnds are the ways in which a VM ends by itself.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		exit *shim.Exit
		want lifecycle.State
	}{
		{"shutdown", &shim.Exit{Reason: shim.ReasonShutdown}, lifecycle.Stopped},
		{"suspended to disk", &shim.Exit{Reason: shim.ReasonSuspended}, lifecycle.Stopped},
		{"panic", &shim.Exit{Reason: shim.ReasonPanicked}, lifecycle.Crashed},
		{"crash", &shim.Exit{Reason: shim.ReasonCrashed, Code: 1, LastWords: "out of luck"}, lifecycle.Crashed},
		{"shim killed", nil, lifecycle.Crashed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a := withRunning(t)
			w.Proc("web").End(c.exit)
			a.waitForState(t, "web", c.want)
			m, err := a.Get(t.Context(), "web")
			if err != nil {
				t.Fatal(err)
			}
			if panicked := c.exit != nil && c.exit.Reason == shim.ReasonPanicked; (m.panics.Load() == 1) != panicked {
				t.Errorf("%d panics are counted", m.panics.Load())
			}
			if _, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil); err != nil {
				t.Errorf("starting again: %v", err)
			}
			if _, err := a.Kill(t.Context(), "web"); err != nil {
				t.Error(err)
			}
			w.WantNothingHeld(t)
		})
	}
}

// TestMonitorEvents changes the state as the VMM says.
func TestMonitorEvents(t *testing.T) {
	w, a := withRunning(t)
	sub := a.hub.Subscribe("web", 0, 16)
	defer sub.Close()
	p := w.Proc("web")
	_ = p.Monitors[0].SetPaused(true)
	for _, e := range []vmm.Event{
		{Name: "STOP", Change: vmm.ChangePaused},
		{Name: "GUEST_PANICKED", Change: vmm.ChangePanicked, Data: []byte(`{"action":"pause"}`)},
		{Name: "VSERPORT_CHANGE", Change: vmm.ChangeAgentConnected},
	} {
		p.Monitors[0].Sends <- e
	}
	var seen []string
	for len(seen) < 4 {
		<-sub.Ready()
		for _, item := range sub.Take() {
			seen = append(seen, item.Event.GetType())
		}
	}
	if want := []string{"state", "STOP", "GUEST_PANICKED", "VSERPORT_CHANGE"}; !slices.Equal(seen, want) {
		t.Errorf("events %q, want %q", seen, want)
	}
	a.wantState(t, "web", lifecycle.Paused)
	m, _ := a.Get(t.Context(), "web")
	if g := m.Snapshot().GetStatus().GetGuest(); !g.GetPanicked() || !g.GetAgentConnected() {
		t.Errorf("guest: %v", g)
	}
}

// TestStartWithoutRecord: a VM whose record can't be kept does not start: an agent that comes back would not know
// how it was started.
func TestStartWithoutRecord(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	record := filepath.Join(a.store.StateDir("web"), "vm.json")
	if _, err := os.Stat(record); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(record), os.MkdirAll(filepath.Join(record, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Start(t.Context(), "web", StartOptions{}, nil); err == nil || !strings.Contains(err.Error(), "keeping the VM's record") {
		t.Errorf("a start whose record can't be written: %v, want that it is not kept", err)
	}
	if m, err := a.Get(t.Context(), "web"); err == nil && m.running() != nil {
		t.Error("the VM runs without a record")
	}
}
