package vm

import (
	"context"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// slowMonitor answers with what was so, after something else has happened.
type slowMonitor struct {
	*vmtest.Monitor
	meanwhile func()
	asked     int
}

func (m *slowMonitor) Status(ctx context.Context) (vmm.Status, error) {
	status, err := m.Monitor.Status(ctx)
	m.asked++
	m.meanwhile()
	return status, err
}

// TestEventsOfLongAgo don't change a VM that has been paused or resumed since.
func TestEventsOfLongAgo(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get("web")
	watcher := &watcher{manager: a.Manager, m: m, l: m.running(), pace: newPace()}
	pause := func() {
		if _, err := a.Pause(t.Context(), "web"); err != nil {
			t.Error(err)
		}
	}
	resume := func() {
		if _, err := a.Resume(t.Context(), "web", false); err != nil {
			t.Error(err)
		}
	}
	pausedEvent, resumedEvent := vmm.Event{Name: "STOP", Change: vmm.ChangePaused}, vmm.Event{Name: "RESUME", Change: vmm.ChangeResumed}

	watcher.monitorEvent(pausedEvent)
	a.wantState(t, "web", lifecycle.Running)
	pause()
	watcher.monitorEvent(resumedEvent)
	a.wantState(t, "web", lifecycle.Paused)

	// The guest runs when the VMM is asked, and is paused before it has answered.
	once := func() { resume(); pause() }
	monitor := &slowMonitor{Monitor: &vmtest.Monitor{Proc: w.Proc("web"), Sends: make(chan vmm.Event)}}
	monitor.meanwhile = func() {
		do := once
		once = func() {}
		do()
	}
	_ = monitor.SetPaused(false)
	watcher.l = newLive(&place.Lease{}, nil, w.VMM, nil, monitor) // of its own: the other is watched, too
	watcher.monitorEvent(resumedEvent)
	a.wantState(t, "web", lifecycle.Paused)
	if monitor.asked != 2 {
		t.Errorf("the VMM was asked %d times, want 2", monitor.asked)
	}

	// Something happens each time that it is asked.
	monitor.asked, monitor.meanwhile = 0, func() { resume(); pause() }
	watcher.monitorEvent(resumedEvent)
	a.wantState(t, "web", lifecycle.Paused)
	if monitor.asked != resyncTries {
		t.Errorf("the VMM was asked %d times, want %d", monitor.asked, resyncTries)
	}
}

// TestLostShimEnds: the end of a shim that didn't answer is noted, and how its VM ended.
func TestLostShimEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		exit *shim.Exit
		want lifecycle.State
	}{
		{"shut down", &shim.Exit{Reason: shim.ReasonShutdown}, lifecycle.Stopped},
		{"saved", &shim.Exit{Reason: shim.ReasonSaved, ImageDirectory: "/image"}, lifecycle.Saved},
		{"killed", nil, lifecycle.Crashed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, a := withRunning(t)
			a.end()
			w.Proc("web").Deaf = true
			b := w.start()
			b.wantState(t, "web", lifecycle.Crashed)
			w.Proc("web").End(c.exit)
			b.watches.Wait() // for that end
			b.wantState(t, "web", c.want)
			w.WantNothingHeld(t)
			if _, err := b.Manager.Start(t.Context(), "web", StartOptions{Cold: true}, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPanicsAreCounted: each once, however often it is reported.
func TestPanicsAreCounted(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	m := newVM("x", nil, &nodev1.VirtualMachine{Spec: &specv1.VirtualMachineSpec{Name: "x"}, Status: &nodev1.VirtualMachineStatus{}}, a.hub, a.followers, a.log)
	watch := &watcher{manager: a.Manager, m: m}
	for _, change := range []vmm.Change{vmm.ChangePanicked, vmm.ChangePanicked, vmm.ChangeReset, vmm.ChangePanicked} {
		watch.monitorEvent(vmm.Event{Change: change})
	}
	if n := m.panics.Load(); n != 2 {
		t.Errorf("%d panics, want 2", n)
	}
}
