package vm

import (
	"context"
	"errors"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

func operate(ctx context.Context, m *VM, op lifecycle.Operation, do func(context.Context, *VM, vmm.Monitor) error) (*nodev1.VirtualMachine, error) {
	_, done, err := m.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer done()
	l := m.running()
	if l == nil {
		return nil, endedMeanwhile(m)
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(m.name), err)
	}
	if err := do(ctx, m, monitor); err != nil {
		if answer, is := err.(*fault.Error); is { // it is the agent's own, and names the VM
			return nil, answer
		}
		err = contract.Errorf("%s: %s: %w", contract.ThisVM(m.name), op, err)
		if ctx.Err() == nil { // else the caller has given up
			err = &fault.Error{Code: codes.Unavailable, Err: err}
		}
		return nil, err
	}
	return m.Snapshot(), nil
}

// endedMeanwhile is what an operation says of a VM that has ended since it was
// looked at.
func endedMeanwhile(m *VM) error {
	return fault.Errorf(codes.Aborted, "%s has ended meanwhile", contract.ThisVM(m.name))
}

// confirmed reports whether the VMM confirms that the guest is in a state that the record
// says it is in: the events that would change the record may not have been handled yet.
func confirmed(ctx context.Context, m *VM, s lifecycle.State, monitor vmm.Monitor) (bool, error) {
	if m.State() != s {
		return false, nil
	}
	status, err := monitor.Status(ctx)
	return status.Running == (s == lifecycle.Running), err
}

// goOn lets a guest run. The shim is asked first: one that has not run since its restore
// or a save must find its disks as they were. It knows that, whatever has become of the
// agent meanwhile.
func goOn(ctx context.Context, m *VM, monitor vmm.Monitor) error {
	if l := m.running(); l != nil {
		err := l.shim.Resume(ctx)
		if changedDisk(err) {
			return fault.Errorf(codes.FailedPrecondition, "%s: %w", contract.ThisVM(m.name), err)
		}
		if err != nil {
			return err
		}
	}
	return monitor.Resume(ctx)
}

// noteDisk notes that a guest which was to go on waits for a disk: then it goes on when that works again,
// though it was paused before.
func noteDisk(ctx context.Context, m *VM, monitor vmm.Monitor) {
	status, err := monitor.Status(ctx)
	if err == nil && status.IOError && m.State() == lifecycle.Paused {
		why := pauseOf(status, m.Snapshot().GetStatus().GetEffectiveSpec())
		m.note(lifecycle.Paused, why.message, why.note)
	}
}

func changedDisk(err error) bool {
	var refused *shim.Error
	return errors.As(err, &refused) && refused.Code == shim.CodeChangedDisk
}

// over waits until a VM has ended and all is given back, after a request that
// ends it. That the shim went away before it replied is no error then.
func over(ctx context.Context, l *live, err error) error {
	if err != nil && !errors.Is(err, shim.ErrDisconnected) {
		return err
	}
	select {
	case <-l.over:
		if l.exit == nil {
			return fault.Errorf(codes.Unavailable, "the connection to its shim was lost: look at the VM's state")
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
