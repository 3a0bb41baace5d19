package vm

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// Suspend asks a guest to write its memory to its own disk and to power off. It returns when
// the guest has taken that up. If it can't after all, it goes on.
func (a *Manager) Suspend(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	m, l, err := a.reach(ctx, name, lifecycle.Suspend)
	if err != nil {
		return nil, err
	}
	cannot := func(err error) error { return fault.Errorf(codes.FailedPrecondition, "vm %s: %w", name, err) }
	if l.vmm == nil {
		return nil, cannot(errors.New("its VMM is not known to this agent: save the VM instead"))
	}
	if err := vmm.RefuseSuspend(l.vmm, m.Snapshot().GetStatus().GetEffectiveSpec()); err != nil {
		return nil, cannot(err)
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, fmt.Errorf("vm %s: %w", name, err)
	}
	suspender, can := monitor.(vmm.GuestSuspender)
	if !can {
		return nil, cannot(errors.New("its VMM has no channel to an agent in the guest: save the VM instead"))
	}
	err = suspender.SuspendGuest(ctx)
	switch {
	case errors.Is(err, vmm.ErrNoGuestAgent), errors.Is(err, vmm.ErrGuestCannot):
		return nil, cannot(err)
	case err != nil && ctx.Err() == nil:
		return nil, fault.Errorf(codes.Unavailable, "vm %s: asking the guest to suspend itself to disk: %w", name, err)
	case err != nil:
		return nil, err
	}
	m.log.Info("the guest is suspending itself to disk")
	return m.Snapshot(), nil
}
