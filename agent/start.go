package agent

import (
	"context"

	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
)

// startOptions say how a VM is started.
type startOptions struct {
	cold, paused bool
}

// start boots a VM, or restores one that is saved.
func (a *Manager) start(ctx context.Context, name string, o startOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	m, err := a.Get(name)
	if err != nil {
		return nil, err
	}
	_, done, err := m.begin(ctx, lifecycle.Start)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, end := m.interruptible(ctx)
	defer end()
	vm := m.snapshot()
	saved := vm.GetStatus().GetImage()
	if vm.GetStatus().GetState() == lifecycle.Saved && !o.cold && saved != nil {
		return a.startSaved(ctx, m, o, progress)
	}
	message := ""
	if saved != nil {
		message = "booted afresh: the image in " + saved.GetPath() + " is no longer its"
	}
	boot := &launch{manager: a, m: m, spec: vm.GetSpec(), paused: o.paused, progress: progress}
	if err := boot.run(ctx, message); err != nil {
		return nil, err
	}
	return m.snapshot(), nil
}
