package vm

import (
	"context"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How many events of one VMM are looked at, in a second and at once. A guest can have
// its VMM tell of panics as often as it likes, and what is in a pod may be no VMM at
// all. What is more stays where it comes from, and is dropped and counted there.
const (
	eventRate  = 10
	eventBurst = 500
	// complaintEvery is how often the log has a line about one VMM's events.
	complaintEvery = 10 * time.Second
	// silenceFirst and silenceLast are how long a monitor that could not be connected is
	// left alone, at first and in the end: its VMM may be paused for a while, as when its
	// disk does.
	silenceFirst = time.Second
	silenceLast  = 30 * time.Second
)

// newBackoff returns waits that are twice as long each time.
func newBackoff(first, last time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Steps: 64, Cap: last}
}

// How often a monitor that was lost, or the shim in a pod's volume, is connected to: some times at once, as when a
// container is restarted, and then at intervals.
const (
	DialInterval = 2 * time.Second
	DialBurst    = 5
)

// pace is how fast a watcher takes what it receives. It is for one goroutine.
type pace struct {
	events *rate.Limiter
	// connects is how often a monitor that was lost is connected again.
	connects *rate.Limiter
	// complaints is how often the log gets a line about too many, or too large events.
	complaints *rate.Limiter
}

func newPace() *pace {
	return &pace{
		events:     rate.NewLimiter(eventRate, eventBurst),
		connects:   rate.NewLimiter(rate.Every(DialInterval), DialBurst),
		complaints: rate.NewLimiter(rate.Every(complaintEvery), 1),
	}
}

// turn returns a channel that fires when the next may be taken; nil: at once.
func turn(l *rate.Limiter) <-chan time.Time {
	if wait := l.Reserve().Delay(); wait > 0 {
		return time.After(wait)
	}
	return nil
}

// resyncTries is how often the VMM is asked, if each time something else has changed the
// VM before it has answered.
const resyncTries = 5

// resync asks the VMM for what events say, or may have said that were dropped. An answer
// is of no use that an operation, or another event, was faster than.
func (w *watcher) resync() {
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

// say changes the message of a VM that runs or is paused.
func (w *watcher) say(message string) {
	w.m.moved(lifecycle.Running, lifecycle.Running, message)
	w.m.moved(lifecycle.Paused, lifecycle.Paused, message)
}

// complain logs what a VMM could have the log flooded with.
func (w *watcher) complain(message string, args ...any) {
	if w.pace.complaints.Allow() {
		w.m.log.Warn(message, args...)
	}
}
