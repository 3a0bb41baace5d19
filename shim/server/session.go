package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// callTime bounds one word with a VMM where nobody else sets a limit.
const callTime = 10 * time.Second

// pause waits, unless the shim ends.
func (s *Server) pause(d time.Duration) bool {
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
func (s *Server) begin(name string, owner *conn) (*operation, error) {
	if s.op != nil {
		return nil, fault.Precondition("another request is under way, %s: try again when it is over", s.op.name)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.op = &operation{name: name, owner: owner, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	s.move()
	return s.op, nil
}

// finish ends the operation after last, which runs with s.mu held.
func (s *Server) finish(op *operation, last func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last()
	s.over(op)
}

// over ends the operation; s.mu is held.
func (s *Server) over(op *operation) {
	s.op = nil
	s.move()
	op.cancel(nil)
	close(op.done)
	s.checkIdle()
}

// checkIdle ends a shim that nobody can give anything to do; s.mu is held.
func (s *Server) checkIdle() {
	if s.o.Pod == nil && s.greeted && len(s.conns) == 0 && s.op == nil && s.vm == nil {
		s.release()
	}
}

// release ends a shim without a VMM; s.mu is held.
func (s *Server) release() {
	if !s.closing {
		s.closing = true
		close(s.released)
	}
}

// running returns the VM, or an error if none runs; s.mu is held.
func (s *Server) running() (*vm, error) {
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
func (s *Server) move() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// saving: the guest is being saved, or that is being undone; s.mu is held.
func (s *Server) saving() bool {
	return s.prepared != nil || s.op != nil && !slices.Contains([]string{opLaunch, opAttach, opDetach, opResume}, s.op.name)
}

// underWay is what keeps a VM from being stopped; s.mu is held.
func (s *Server) underWay() string {
	if s.op != nil {
		return s.op.name
	}
	return "save"
}

// takePrepared makes the save that waits for its commit the business of a new
// operation; s.mu is held and no other operation is under way.
func (s *Server) takePrepared() *operation {
	s.prepared.expire.Stop()
	s.prepared = nil
	op, _ := s.begin("abort", nil)
	return op
}

// record writes exit.json.
func (s *Server) record(exit *shim.Exit) {
	if err := writeJSON(s.state, shim.ExitName, exit); err != nil {
		s.log.Error("write down how the VMM ended", "error", err, "reason", exit.Reason)
	}
}

func writeJSON(dir *rundir.Dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", dir.Path(name), err)
	}
	return dir.WriteFile(name, append(b, '\n'), 0o600)
}
