package vm

import (
	"context"
	"errors"
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
	m, _ := a.Get(t.Context(), "web")
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: m.running(), pace: newPace()}
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

// restlessMonitor lets the guest run, and has the VMM stop it again before that is recorded.
type restlessMonitor struct {
	*vmtest.Monitor
	t *testing.T
}

func (m *restlessMonitor) Resume(ctx context.Context) error {
	if err := m.Monitor.Resume(ctx); err != nil {
		return err
	}
	if err := m.SetPaused(true); err != nil {
		return err
	}
	m.Sends <- vmm.Event{Name: "STOP", Change: vmm.ChangePaused}
	m.Sends <- vmm.Event{Name: "OTHER"}
	vmtest.Eventually(m.t, "the watch has handled STOP", func() bool { return len(m.Sends) == 0 })
	return nil
}

// TestStopDuringResume: a guest that the VMM stops before its resume is recorded does not stay
// recorded as running, and its disk is tried again.
func TestStopDuringResume(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	proc, l := w.Proc("web"), m.running()
	proc.Mu.Lock()
	proc.Stopped = &vmm.Status{IOError: true}
	proc.Mu.Unlock()
	l.mu.Lock()
	l.monitor = &restlessMonitor{l.monitor.(*vmtest.Monitor), t}
	l.mu.Unlock()
	if _, err := a.Resume(t.Context(), "web", false); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "the record says why it is paused", func() bool { return stoppedByDisk(m) })
}

// TestRecordBehindVMM: a pause and a resume ask the VMM, as its events may not have been
// handled yet. One that agrees with the record is left alone.
func TestRecordBehindVMM(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	l := m.running()
	monitor, err := l.connected()
	if err != nil {
		t.Fatal(err)
	}
	pause := func() error { _, err := a.Pause(t.Context(), "web"); return err }
	resume := func() error { _, err := a.Resume(t.Context(), "web", false); return err }
	for _, c := range []struct {
		name    string
		behind  func(context.Context) error
		do      func() error
		running bool
	}{
		{"stopped", monitor.Pause, resume, true},
		{"paused already", monitor.Pause, pause, false},
		{"goes on", monitor.Resume, pause, false},
		{"runs already", monitor.Resume, resume, true},
	} {
		if err := c.behind(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		status, err := monitor.Status(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if recorded := m.State() == lifecycle.Running; status.Running != c.running || recorded != c.running {
			t.Errorf("%s: running %t, recorded %t, want %t", c.name, status.Running, recorded, c.running)
		}
	}
	w.FailStep("resumed", errors.New("asked to resume"))
	if err := resume(); err != nil {
		t.Errorf("a guest that runs: %v", err)
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
			b.Wait() // for that end
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
	m := newVM("x", nil, &nodev1.VirtualMachine{Spec: &specv1.VirtualMachineSpec{Name: "x"}, Status: &nodev1.VirtualMachineStatus{}}, a.Registry.hub, a.Registry.followers, a.Registry.log)
	watch := &watcher{supervisor: a.Adopter.supervisor, m: m}
	for _, change := range []vmm.Change{vmm.ChangePanicked, vmm.ChangePanicked, vmm.ChangeReset, vmm.ChangePanicked} {
		watch.monitorEvent(vmm.Event{Change: change})
	}
	if n := m.panics.Load(); n != 2 {
		t.Errorf("%d panics, want 2", n)
	}
}

// closedMonitor counts how often it is closed.
type closedMonitor struct {
	*vmtest.Monitor
	closed int
}

func (m *closedMonitor) Close() error { m.closed++; return nil }

// TestSwapClosesTheFormerMonitor: a VMM has room for few connections, and one that is lost holds a descriptor.
func TestSwapClosesTheFormerMonitor(t *testing.T) {
	first, second := &closedMonitor{}, &closedMonitor{}
	l := newLive(nil, nil, nil, nil, first)
	l.swap(first)
	if first.closed != 0 {
		t.Error("a monitor that stays is closed")
	}
	l.swap(second)
	l.swap(nil)
	if first.closed != 1 || second.closed != 1 {
		t.Errorf("the former monitors were closed %d and %d times, want once each", first.closed, second.closed)
	}
}
