package vm

import (
	"context"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// Suspend asks a guest to write its memory to its own disk and to power off. It returns when
// the guest has taken that up. If it can't after all, it goes on.
func (g *Guests) Suspend(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	m, l, err := g.reach(ctx, name, lifecycle.Suspend)
	if err != nil {
		return nil, err
	}
	cannot := func(err error) error {
		return fault.Errorf(codes.FailedPrecondition, "%s: %w", contract.ThisVM(name), err)
	}
	const save, reason = contract.Advice("save the VM instead"), contract.Reason(contract.FaultSaveInstead)
	if l.vmm == nil {
		return nil, cannot(contract.Errorf("its VMM is not known to this agent%s%s", save, reason))
	}
	if err := vmm.Suspendable(l.vmm, m.Snapshot().GetStatus().GetEffectiveSpec()); err != nil {
		return nil, cannot(err)
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	suspender, can := monitor.(vmm.GuestSuspender)
	if !can {
		return nil, cannot(contract.Errorf("its VMM has no channel to an agent in the guest%s%s", save, reason))
	}
	err = unanswered(ctx, name, "asking the guest to suspend itself to disk", suspender.SuspendGuest(ctx), vmm.ErrNoGuestAgent, vmm.ErrGuestCannot)
	if err != nil {
		return nil, err
	}
	m.log.Info("the guest is suspending itself to disk")
	return m.Snapshot(), nil
}
