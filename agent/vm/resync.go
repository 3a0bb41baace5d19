package vm

import (
	"context"
	"fmt"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// resyncTries is how often the VMM is asked, if each time something else has changed the
// VM before it has answered.
const resyncTries = 5

// resync asks the VMM for what events say, or may have said that were dropped. An answer
// is of no use that an operation, or another event, was faster than.
func (w *watcher) resync() {
	if w.l.renewing.Load() {
		w.ignored = true
		return
	}
	monitor, err := w.l.connected()
	if err != nil {
		return // it is asked when it is there again
	}
	ctx, cancel := context.WithTimeout(w.tasks.ctx, monitorPatience)
	defer cancel()
	for range resyncTries {
		before := w.m.Snapshot()
		status, err := monitor.Status(ctx)
		if err != nil {
			w.m.log.Debug("failed to ask the VMM for its state", "error", err)
			return
		}
		from, to := lifecycle.Running, lifecycle.Paused
		if status.Running {
			from, to = to, from
		}
		why := pauseOf(status, before.GetStatus().GetEffectiveSpec())
		if !w.m.movedSince(before, from, to, why.message, why.note) {
			continue
		}
		if status.Panicked {
			w.panicked()
		}
		w.planRetry()
		return
	}
	w.m.log.Warn("what the VMM says of its state was outdated each time that it was asked")
}

// heard handles an event that says that the guest has left a state. Pause and resume events
// may be stale, and the record may be: confirm with the VMM before recording the change, at
// the latest when the operation under way has recorded what it knows.
func (w *watcher) heard(before lifecycle.State) {
	if w.m.State() != before {
		w.ignored = true
		return
	}
	w.resync()
}

// panicked notes a panic. A guest may report one several times.
func (w *watcher) panicked() {
	if !w.m.Snapshot().GetStatus().GetGuest().GetPanicked() {
		w.m.panics.Add(1)
	}
	w.guest(func(g *nodev1.GuestStatus) { g.Panicked = true })
}

// remark says of a VM that is as it was that its monitor doesn't answer.
func (w *watcher) remark(why error) {
	message := w.m.Snapshot().GetStatus().GetMessage()
	if message != w.remarked {
		w.before = message
	}
	w.remarked = fault.Clip(fmt.Sprintf("its VMM's monitor does not answer: the guest may go on, but can't be paused, saved or watched: kill the VM if that stays so (%v)", why), fault.MaxMessage)
	w.say(w.remarked)
}

// unremark takes that back.
func (w *watcher) unremark() {
	if w.failures > 1 && w.m.Snapshot().GetStatus().GetMessage() == w.remarked {
		w.say(w.before)
	}
	w.failures, w.remarked = 0, ""
}
