package server

import (
	"context"
	"errors"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

const (
	// maxFreeze bounds how long a guest is frozen.
	maxFreeze = 24 * time.Hour
	// freezeTime is how long a guest may take to write what its file systems have not
	// written yet, and thawTime to go on.
	freezeTime = 2 * time.Minute
	thawTime   = 30 * time.Second
	// thawAgain is how long the shim waits before it tries again to thaw.
	thawAgain = 5 * time.Second
	// thawLog is the least time between two lines of the log about that: an agent that
	// has gone may never come back.
	thawLog = time.Minute
	// maxProbe bounds how long a probe takes, and guestProbeTime is how long one does that does
	// not say.
	maxProbe       = 10 * time.Minute
	guestProbeTime = time.Second
	// maxCommand bounds a probe's program and its arguments together, in bytes.
	maxCommand = 16 << 10
)

// guests is the room for what is asked of a guest, or handed to its users: its agent, its console
// and display, its addresses.
type guests struct {
	*session
	// credentials is how far the guest has the pod's Secrets; nil: not known yet; guarded by mu.
	credentials *shim.Credentials
}

// guestAgent returns the running VM with its guest's agent.
func (s *guests) guestAgent() (*vm, control.GuestAgent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.running()
	if err != nil {
		return nil, nil, err
	}
	agent, can := v.machine().(control.GuestAgent)
	if !can {
		return nil, nil, fault.Precondition("a %s has no channel to an agent in its guest", v.plan.VMM)
	}
	return v, agent, nil
}

// agent is the guest's, of a VM whose VMM has a channel to it.
func (v *vm) agent() control.GuestAgent { return v.machine().(control.GuestAgent) }

// beginFreeze arms the thaw before it freezes: whatever goes wrong, the guest goes on.
func (s *guests) beginFreeze(args *shim.Freeze) (work, error) {
	if args.Timeout <= 0 || args.Timeout > maxFreeze {
		return nil, fault.New(shim.CodeInvalid, "timeout", "%v: want more than 0 and at most %v", args.Timeout, maxFreeze)
	}
	v, _, err := s.guestAgent()
	if err != nil {
		return nil, err
	}
	return func() (any, error) { return nil, s.freezeFor(v, args.Timeout) }, nil
}

func (s *guests) freezeFor(v *vm, timeout time.Duration) error {
	v.freezing.Lock()
	defer v.freezing.Unlock()
	first, err := s.armThaw(v, timeout)
	if err != nil {
		return err
	}
	ctx, cancel := v.guestTime(freezeTime)
	defer cancel()
	err = v.agent().Freeze(ctx)
	if err == nil && s.frozen(v) {
		s.log.Info("the guest's file systems are frozen", "timeout", timeout)
		return nil
	}
	if err == nil {
		err = fault.New(shim.CodeUnavailable, "", "the guest was reset meanwhile")
	}
	s.log.Warn("failed to freeze the guest's file systems", "error", err)
	if first && errors.Is(err, control.ErrNoGuestAgent) { // nobody has heard of it
		s.mu.Lock()
		defer s.mu.Unlock()
		v.freeze.end()
		return guestError(err)
	}
	return errors.Join(guestError(err), s.thaw(v))
}

// armThaw has the guest thawed after a time. first: it was not to be before.
func (s *guests) armThaw(v *vm, after time.Duration) (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.ended:
		return false, fault.Precondition("the VMM has ended")
	case v.stopping != nil, v.killed, s.closing: // it has to write to shut down
		return false, fault.Precondition("the VM is being stopped")
	case s.prepared != nil || s.op != nil && s.op.name == opSave:
		return false, fault.Precondition("the VM is being saved: try again when that is over")
	case s.op != nil && s.op.name == opRenew:
		return false, fault.Precondition("the VM's VMM is being renewed: try again when that is over")
	case v.freeze.thaw == nil:
		v.freeze.thaw = time.AfterFunc(after, func() { s.thawDue(v) })
		return true, nil
	}
	v.freeze.thaw.Reset(after)
	return false, nil
}

// thawDue thaws, and tries until it has: the guest is paused otherwise. One whose agent has
// gone stays frozen until it is reset.
func (s *guests) thawDue(v *vm) {
	v.freezing.Lock()
	defer v.freezing.Unlock()
	if !s.frozen(v) { // it was thawed or reset meanwhile
		return
	}
	err := s.thaw(v)
	if err == nil {
		s.log.Warn("thawed the guest's file systems: the time of their freeze is over, or the VM is being stopped")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.freeze.thaw == nil || v.ended {
		return
	}
	v.freeze.thaw.Reset(thawAgain)
	if time.Since(v.freeze.failed) >= thawLog {
		v.freeze.failed = time.Now()
		s.log.Error("failed to thaw the guest's file systems", "error", err, "again", thawAgain)
	}
}

// thaw returns when the agent says that nothing is frozen; v.freezing is held.
func (s *guests) thaw(v *vm) error {
	ctx, cancel := v.guestTime(thawTime)
	defer cancel()
	if err := v.agent().Thaw(ctx); err != nil {
		return guestError(err)
	}
	s.thawed(v)
	return nil
}

// thawed notes that nothing is frozen: the agent says so, or the guest was reset.
func (s *guests) thawed(v *vm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.freeze.end() {
		s.tell(shim.Event{Thawed: true}, nil)
	}
}

func (s *guests) beginThaw() (work, error) {
	v, _, err := s.guestAgent()
	if err != nil {
		return nil, err
	}
	return func() (any, error) {
		v.freezing.Lock()
		defer v.freezing.Unlock()
		return nil, s.thaw(v)
	}, nil
}

// frozen tells whether the guest's file systems may be frozen.
func (s *guests) frozen(v *vm) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.freeze.thaw != nil
}

// beginProbe is of the pod's kubelet, by way of a program in the container.
func (s *guests) beginProbe(args *shim.Probe) (work, error) {
	size := 0
	for _, word := range args.Command {
		size += len(word)
	}
	if size > maxCommand {
		return nil, fault.New(shim.CodeInvalid, "command", "%d bytes, at most %d", size, maxCommand)
	}
	if args.Liveness && s.moving() {
		return func() (any, error) { return &shim.Probed{Moving: true}, nil }, nil
	}
	v, agent, err := s.guestAgent()
	if err != nil {
		return nil, err
	}
	within := min(args.Timeout, maxProbe)
	if within <= 0 {
		within = guestProbeTime
	}
	return func() (any, error) {
		ctx, cancel := v.guestTime(within)
		defer cancel()
		switch {
		case len(args.Command) == 0:
			return &shim.Probed{}, guestError(agent.Ping(ctx))
		case s.frozen(v):
			return &shim.Probed{Frozen: true}, nil
		}
		probed, err := agent.Exec(ctx, args.Command)
		return probed, guestError(err)
	}, nil
}

// moving: the guest is being saved or started, its VMM renewed, or is yet to go on from the image that its pod is there for.
func (s *guests) moving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prepared != nil || s.op != nil && (s.op.name == opSave || s.op.name == opRenew) {
		return true
	}
	restores := s.o.Pod != nil && s.o.Pod.Described.Restore != nil
	return s.exit == nil && (restores && s.vm == nil || s.op != nil && s.op.name == opLaunch)
}

// guestTime ends with the VMM, too.
func (v *vm) guestTime(most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	go func() {
		select {
		case <-v.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// guestError says that it is the guest who does not answer.
func guestError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, control.ErrNoGuestAgent), errors.Is(err, context.DeadlineExceeded):
		return fault.New(shim.CodeUnavailable, "", "%v", err)
	}
	return err
}

// rebootTime is how long a guest's agent may take to take the request.
const rebootTime = 10 * time.Second

func (s *guests) beginReboot(args *shim.Reboot) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.running()
	switch {
	case err != nil:
		return nil, err
	case s.op != nil || s.prepared != nil:
		return nil, fault.Precondition("a %s is under way: try again when it is over", s.underWay())
	case v.stopping != nil, v.killed, s.closing:
		return nil, fault.Precondition("the VM is being stopped")
	case v.freeze.thaw != nil:
		return nil, fault.Precondition("the guest's file systems are frozen: thaw them first")
	}
	machine, can := v.machine().(control.Rebooter)
	if !can {
		return nil, fault.Precondition("a guest of a %s can't be asked to reboot: reset it", v.plan.VMM)
	}
	return func() (any, error) {
		ctx, cancel := v.guestTime(rebootTime)
		defer cancel()
		return nil, guestError(machine.Reboot(ctx, args.Button))
	}, nil
}
