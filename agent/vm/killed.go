package vm

import (
	"context"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// killedSilent is the message of a VM whose shim had to be killed.
const killedSilent = "killed: its shim did not answer"

func wasKilled(vm *nodev1.VirtualMachine) {
	vm.Status.EndReason = nodev1.EndReason_END_REASON_KILLED
}

// killLost ends a lost shim. It is that very process, by its pidfd, and its VMM dies
// with it.
func killLost(ctx context.Context, m *VM, process place.ShimProcess) (*nodev1.VirtualMachine, error) {
	err := endLost(ctx, m, process, func() (note func(), err error) {
		if err := process.Kill(); err != nil {
			return nil, err
		}
		return func() { m.note(lifecycle.Stopped, killedSilent, wasKilled) }, process.Wait(ctx)
	})
	return m.Snapshot(), err
}

// endLost takes back what a lost shim had, after its end has been seen to. Of several
// who are at it one does it: afterwards the folders may be another run's.
func endLost(ctx context.Context, m *VM, process place.ShimProcess, end func() (note func(), err error)) error {
	select {
	case m.slot <- struct{}{}:
		defer func() { <-m.slot }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m.mu.Lock()
	done := m.lost != process
	m.mu.Unlock()
	if done {
		return nil
	}
	note, err := end()
	if err != nil {
		return err
	}
	if err := m.keeper.Sweep(context.WithoutCancel(ctx)); err != nil {
		m.log.Error("failed to release the VM's host resources", "error", err)
	}
	m.mu.Lock()
	m.lost = nil
	m.mu.Unlock()
	note()
	return process.Close()
}
