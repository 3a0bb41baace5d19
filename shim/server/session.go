package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// callTime bounds one word with a VMM where nobody else sets a limit.
const callTime = 10 * time.Second

// session is the one VM of a shim, what is under way with it, and the agents that are connected:
// what more than one room decides by. Rooms have it, and beside it what is theirs alone.
type session struct {
	o Options
	// log names the VM when there is one: it is read by who has found vm, or holds mu.
	// Connections come and go before, and write to o.Log.
	log        *slog.Logger
	run, state *rundir.Dir
	ended      chan struct{} // closed when the VMM has ended and that is written down
	released   chan struct{} // closed when there is nothing to stay for

	mu      sync.Mutex
	conns   map[*conn]struct{}
	greeted bool // an agent has connected
	closing bool // nothing is begun any more
	// moved gets a value when an operation begins or ends.
	moved     chan struct{}
	op        *operation // under way; nil: none
	vm        *vm        // nil: none was launched
	prepared  *prepared  // a save that waits for its commit
	damaged   string     // what is wrong with the image that RAM is mapped from
	damagedAt time.Time  // when that was found
	// damagedParts are damaged in parts.
	damagedParts []contract.Fault
	exit         *shim.Exit       // set before ended is closed
	refusal      *contract.Ending // why no VMM is to be started
	launchErr    error            // of the last launch, or of what comes before it
}

func newSession(o Options) (*session, error) {
	run, err := rundir.Open(o.RunDir)
	if err != nil {
		return nil, err
	}
	state, err := rundir.Open(o.StateDir)
	if err != nil {
		run.Close()
		return nil, err
	}
	return &session{
		o: o, log: o.Log, run: run, state: state,
		conns:    make(map[*conn]struct{}),
		ended:    make(chan struct{}),
		released: make(chan struct{}),
		moved:    make(chan struct{}, 1),
	}, nil
}

// tell tells all agents, but for one, if it is not nil; s.mu is held.
func (s *session) tell(e shim.Event, but *conn) {
	for c := range s.conns {
		if c != but {
			c.event(e)
		}
	}
}

// pause waits, unless the shim ends.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ended:
	case <-s.released:
	}
	return false
}

// begin starts an operation; s.mu is held.
func (s *session) begin(name string, owner *conn) (*operation, error) {
	if s.op != nil {
		return nil, fault.Precondition("another request is under way, %s: try again when it is over", s.op.name)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.op = &operation{name: name, owner: owner, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	s.move()
	return s.op, nil
}

// finish ends the operation after last, which runs with s.mu held.
func (s *session) finish(op *operation, last func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last()
	s.over(op)
}

// over ends the operation; s.mu is held.
func (s *session) over(op *operation) {
	s.op = nil
	s.move()
	op.cancel(nil)
	close(op.done)
	s.checkIdle()
}

// checkIdle ends a shim that nobody can give anything to do; s.mu is held.
func (s *session) checkIdle() {
	if s.o.Pod == nil && s.greeted && len(s.conns) == 0 && s.op == nil && s.vm == nil {
		s.release()
	}
}

// release ends a shim without a VMM; s.mu is held.
func (s *session) release() {
	if !s.closing {
		s.closing = true
		close(s.released)
	}
}

// running returns the VM, or an error if none runs; s.mu is held.
func (s *session) running() (*vm, error) {
	switch {
	case s.vm == nil && s.op != nil:
		return nil, fault.Precondition("the VMM is still being started")
	case s.vm == nil:
		return nil, fault.Precondition("no VMM was started")
	case s.vm.ended:
		return nil, fault.Precondition("the VMM has ended")
	}
	return s.vm, nil
}

// move wakes awaitSave.
func (s *session) move() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// saving: the guest is being saved, or that is being undone; s.mu is held.
func (s *session) saving() bool {
	return s.prepared != nil || s.op != nil && !slices.Contains([]string{opLaunch, opAttach, opDetach, opResume, opRenew}, s.op.name)
}

// underWay is what keeps a VM from being stopped; s.mu is held.
func (s *session) underWay() string {
	if s.op != nil {
		return s.op.name
	}
	return "save"
}

// takePrepared makes the save that waits for its commit the business of a new
// operation; s.mu is held and no other operation is under way.
func (s *session) takePrepared() *operation {
	s.prepared.expire.Stop()
	s.prepared = nil
	op, _ := s.begin("abort", nil)
	return op
}

// record writes exit.json.
func (s *session) record(exit *shim.Exit) {
	if err := writeJSON(s.state, shim.ExitName, exit); err != nil {
		s.log.Error("failed to record how the VMM ended", "error", err, "reason", exit.Reason)
	}
}

func writeJSON(dir *rundir.Dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", dir.Path(name), err)
	}
	return dir.WriteFile(name, append(b, '\n'), 0o600)
}
