package server

import (
	"cmp"
	"context"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// ender is the room for the VMM's end: asked for, forced or by itself.
type ender struct {
	*session
	rollback *rollback
}

// awaitSave waits, when the shim was asked to end, for a save: until one begins, for as long as Pod says,
// and then until that is over. It is true if the VMM has ended meanwhile, also by a stop or a kill.
func (s *ender) awaitSave() bool {
	if s.o.Pod == nil || s.o.Pod.AwaitSave <= 0 {
		return false
	}
	s.o.Log.Info("asked to end: waiting for a save of the guest", "for", s.o.Pod.AwaitSave)
	late := time.After(s.o.Pod.AwaitSave)
	for {
		s.mu.Lock()
		v, saving := s.vm, s.saving()
		over := v == nil || late == nil && !saving
		s.mu.Unlock()
		if over {
			return false
		}
		select {
		case <-s.ended:
			return true
		case <-s.moved:
		case <-late:
			late = nil
		}
	}
}

func (s *ender) beginStop(args *shim.Stop) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vm != nil && s.vm.ended {
		return s.awaitExit, nil
	}
	v, err := s.running()
	switch {
	case err != nil:
		return nil, err
	case s.op != nil || s.prepared != nil:
		return nil, fault.Precondition("a %s is under way: wait for it, abort it, or kill the VM", s.underWay())
	}
	s.stopWithin(v, max(0, args.Grace))
	return func() (any, error) {
		s.press(v)
		faultpoint.Reach("shim.stop.pressed")
		s.pressAgain(v)
		return s.awaitExit()
	}, nil
}

// awaitExit waits until it is written down how the VMM ended.
func (s *ender) awaitExit() (any, error) {
	<-s.ended
	return s.exit, nil
}

// stopWithin sets when the VM is killed; an earlier time stands. s.mu is held.
func (s *ender) stopWithin(v *vm, grace time.Duration) {
	deadline := time.Now().Add(grace)
	if v.freeze.thaw != nil { // it has to write to shut down
		v.freeze.thaw.Reset(0)
	}
	switch {
	case v.stopping == nil:
		v.stopping = &stopping{deadline, time.AfterFunc(grace, func() { s.graceOver(v) })}
	case deadline.Before(v.stopping.deadline):
		v.stopping.deadline = deadline
		v.stopping.timer.Reset(grace)
	}
}

// pressAgain presses the power button now and then until the VMM has ended: a guest that
// boots does not hear the first.
func (s *ender) pressAgain(v *vm) {
	for {
		select {
		case <-s.ended:
			return
		case <-time.After(s.o.PressEvery):
			s.press(v)
		}
	}
}

// press presses the power button. A guest that is paused would never hear it, and is
// continued.
func (s *ender) press(v *vm) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	s.mu.Lock()
	whole := s.damaged == "" // else it would write to its disks what it reads wrong
	s.mu.Unlock()
	if whole {
		if err := s.proceed(ctx, v); err != nil && !v.proc().ended() {
			s.log.Warn("failed to resume the guest so that it can shut down", "error", err)
		}
	}
	if err := v.machine().PowerDown(ctx); err != nil && !v.proc().ended() {
		s.log.Warn("failed to press the guest's power button", "error", err)
	}
}

func (s *ender) graceOver(v *vm) {
	s.mu.Lock()
	v.killed, v.graceOver = true, true
	s.mu.Unlock()
	s.log.Warn("the guest has not shut down within its grace period: killing the VMM")
	if err := v.proc().kill(); err != nil {
		s.log.Error("failed to kill the VMM", "error", err)
	}
}

// beginKill ends the VMM whatever is under way. A launch is undone.
func (s *ender) beginKill(args *shim.Kill) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op, v := s.op, s.vm
	if v == nil && op != nil && op.name == opLaunch {
		return func() (any, error) {
			op.end(fault.ErrKilled)
			<-op.done
			if next, err := s.beginKill(args); err == nil {
				return next() // it was too late to undo the launch
			}
			return nil, fault.Precondition("the launch was given up: there is no VMM any more")
		}, nil
	}
	switch {
	case v == nil:
		return nil, fault.Precondition("no VMM was started")
	case v.ended:
		return s.awaitExit, nil
	}
	v.killed = true
	s.refusal = cmp.Or(s.refusal, args.Refusal())
	if op != nil {
		op.end(fault.ErrKilled)
	}
	return func() (any, error) {
		if err := v.proc().kill(); err != nil {
			return nil, err
		}
		faultpoint.Reach("shim.kill.killed")
		return s.awaitExit()
	}, nil
}
