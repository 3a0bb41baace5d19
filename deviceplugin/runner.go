package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
)

// runner looks after the devices of one kind.
type runner struct {
	kind   Kind
	server *Server
	log    *slog.Logger
	again  chan struct{}
	last   []Device
}

func newRunner(k Kind, s *Server, log *slog.Logger) *runner {
	return &runner{kind: k, server: s, log: log, again: make(chan struct{}, 1)}
}

// look has it look again, soon.
func (r *runner) look() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

const (
	// storm is how long a kind has rest between two looks, so that a thousand
	// device nodes that are made one after the other cost no thousand looks.
	storm = 10 * time.Millisecond
	// A device that can't be used is looked at again by itself: that a cgroup
	// permits it, or that somebody listens on a socket, no file tells.
	firstAgain = 100 * time.Millisecond
	lastAgain  = 5 * time.Second
)

// run keeps the server told of the devices until ctx ends.
func (r *runner) run(ctx context.Context) {
	again := firstAgain
	for {
		devices := r.find(ctx)
		if ctx.Err() != nil {
			return
		}
		r.server.Update(devices)
		r.last = devices
		var wait time.Duration // for ever
		if slices.ContainsFunc(devices, func(d Device) bool { return d.Obstacle != "" }) {
			wait, again = again, min(2*again, lastAgain)
		} else {
			again = firstAgain
		}
		if !r.rest(ctx, storm) || !r.wait(ctx, wait) {
			return
		}
	}
}

func (r *runner) rest(ctx context.Context, rest time.Duration) bool {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// wait waits until it is to look again; most is the longest, 0: none.
func (r *runner) wait(ctx context.Context, most time.Duration) bool {
	var tick <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.again:
	case <-tick:
	}
	return true
}

// find asks the kind. One that panics has a fault of its own, which must not
// end the agent and with it all others: what it had can't be used until it has
// answered.
func (r *runner) find(ctx context.Context) (devices []Device) {
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		r.log.Error("failed to look for devices", "resource", r.kind.Resource(), "error", fault, "stack", string(debug.Stack()))
		devices = slices.Clone(r.last)
		for i := range devices {
			devices[i].Obstacle = fmt.Sprintf("looking for it failed: %v", fault)
		}
	}()
	return r.kind.Find(ctx)
}
