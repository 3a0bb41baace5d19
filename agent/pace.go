package agent

import (
	"context"
	"time"

	"github.com/vmlet/vmlet/agent/lifecycle"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"golang.org/x/time/rate"
)

// How many events of one VMM are looked at, in a second and at once. A guest can have
// its VMM tell of panics as often as it likes, and what is in a pod may be no VMM at
// all. What is more stays where it comes from, and is dropped and counted there.
const (
	eventRate  = 100
	eventBurst = 500
)

// pace is how fast a watcher takes what it is told. It is for one goroutine.
type pace struct {
	events *rate.Limiter
	// connects is how often a monitor that was lost is connected again.
	connects *rate.Limiter
}

func newPace() *pace {
	return &pace{events: rate.NewLimiter(eventRate, eventBurst), connects: rate.NewLimiter(rate.Every(dialInterval), dialBurst)}
}

// turn returns a channel that fires when the next may be taken; nil: at once.
func turn(l *rate.Limiter) <-chan time.Time {
	if wait := l.Reserve().Delay(); wait > 0 {
		return time.After(wait)
	}
	return nil
}

// resync asks for what events may have said that were dropped.
func (w *watcher) resync() {
	monitor, err := w.l.connected()
	if err != nil {
		return // it is asked when it is there again
	}
	ctx, cancel := context.WithTimeout(w.agent.ctx, monitorPatience)
	defer cancel()
	status, err := monitor.Status(ctx)
	if err != nil {
		w.m.log.Debug("asking the VMM for its state", "error", err)
		return
	}
	if status.Running {
		w.moved(lifecycle.Paused, lifecycle.Running, "")
	} else {
		w.paused("")
	}
	if status.Panicked {
		w.panicked()
	}
}

// panicked notes a panic, of which a guest may report one several times.
func (w *watcher) panicked() {
	w.guest(func(g *vmletv1.GuestStatus) {
		if !g.Panicked {
			w.m.panics.Add(1)
		}
		g.Panicked = true
	})
}
