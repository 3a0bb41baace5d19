package vm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/vmm"
)

// TestRetryDisk: a guest that a disk's error has stopped is let go on, and is as the VMM says
// afterwards; one that somebody has paused is left alone.
func TestRetryDisk(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	monitor := &statusMonitor{Monitor: &vmtest.Monitor{Proc: w.Proc("web"), Sends: make(chan vmm.Event)}}
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, pace: newPace()}
	watcher.l = newLive(&place.Lease{}, nil, w.VMM, nil, monitor)
	says := func(status vmm.Status, change vmm.Change) {
		monitor.status = status
		watcher.monitorEvent(vmm.Event{Change: change})
	}
	paused := func() bool {
		w.Proc("web").Mu.Lock()
		defer w.Proc("web").Mu.Unlock()
		return w.Proc("web").Paused
	}

	if err := monitor.Monitor.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(vmm.Status{IOError: true}, vmm.ChangePaused)
	if watcher.retry.due == nil || watcher.retry.waits.Duration != 2*retryFirst {
		t.Fatalf("no retry is planned: %+v", watcher.retry)
	}
	watcher.retryDue()
	<-watcher.retry.tried
	if paused() {
		t.Error("the VMM was not asked to go on")
	}
	if m.State() != lifecycle.Paused {
		t.Errorf("the VM is %s before the VMM has said so", lifecycle.Name(m.State()))
	}
	watcher.retried()
	if watcher.held == nil || watcher.retry.due == nil || watcher.retry.waits.Duration != 4*retryFirst {
		t.Errorf("after a retry: %+v", watcher.retry)
	}
	says(vmm.Status{Running: true}, vmm.ChangeResumed)
	if m.State() != lifecycle.Running || watcher.retry != (retry{}) {
		t.Errorf("the guest goes on: %s, %+v", lifecycle.Name(m.State()), watcher.retry)
	}

	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	says(vmm.Status{Asked: true}, vmm.ChangePaused)
	if watcher.planRetry(); watcher.retry.due != nil {
		t.Error("a retry is planned for a guest that was paused")
	}
	if err := retryDisk(a.Context(), m); err != nil || !paused() {
		t.Errorf("a guest that was paused goes on: %v", err)
	}
}

// TestRetryWaits: they grow, and end.
func TestRetryWaits(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, pace: newPace()}
	monitor := &statusMonitor{Monitor: &vmtest.Monitor{Proc: w.Proc("web"), Sends: make(chan vmm.Event)}, status: vmm.Status{IOError: true}}
	watcher.l = newLive(&place.Lease{}, nil, w.VMM, nil, monitor)
	watcher.monitorEvent(vmm.Event{Change: vmm.ChangePaused})
	var last time.Duration
	for range 10 {
		watcher.retry.due = nil
		watcher.planRetry()
		if next := watcher.retry.waits.Duration; next < last {
			t.Errorf("%v after %v", next, last)
		}
		last = watcher.retry.waits.Duration
	}
	if last != retryLast {
		t.Errorf("at last %v, want %v", last, retryLast)
	}
}

// stuckMonitor is of a VMM whose disk fails again at once.
type stuckMonitor struct{ *vmtest.Monitor }

func (m *stuckMonitor) Resume(context.Context) error {
	return errors.New("the disk still can't be written")
}

// TestPauseHoldsWithoutDisk: a guest that a disk's error has stopped and that its user pauses stays paused when the disk
// works again, also under another agent; one that its user wants to go on waits for the disk again.
func TestPauseHoldsWithoutDisk(t *testing.T) {
	w, a := withRunning(t)
	proc := w.Proc("web")
	stopped := func() bool { proc.Mu.Lock(); defer proc.Mu.Unlock(); return proc.Paused }
	proc.Mu.Lock()
	proc.Paused, proc.Stopped = true, &vmm.Status{IOError: true}
	monitor := proc.Monitors[len(proc.Monitors)-1]
	proc.Mu.Unlock()
	monitor.Sends <- vmm.Event{Name: "STOP", Change: vmm.ChangePaused}
	a.paused(t, byDisk, "")
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	a.paused(t, byUser, "")
	m, _ := a.Get(t.Context(), "web")
	if err := retryDisk(a.Context(), m); err != nil || !stopped() {
		t.Errorf("a guest that its user has paused goes on when the disk works again: %v", err)
	}
	a.end()
	a = w.start()
	a.paused(t, byUser, "")

	m, _ = a.Get(t.Context(), "web")
	l := m.running()
	l.mu.Lock()
	l.monitor = &stuckMonitor{l.monitor.(*vmtest.Monitor)}
	l.mu.Unlock()
	if _, err := a.Resume(t.Context(), "web", false); err == nil {
		t.Error("a resume in vain succeeds")
	}
	a.paused(t, byDisk, "")
}
