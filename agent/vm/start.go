package vm

import (
	"context"

	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
)

// StartOptions say how a VM is started.
type StartOptions struct {
	Cold   bool // boot even if the VM is saved; its image is then no longer the VM's
	Paused bool // leave the guest paused
}

// Start boots a VM, or restores one that is saved.
func (a *Manager) Start(ctx context.Context, name string, o StartOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	m, done, err := a.take(ctx, name, lifecycle.Start)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, end := m.interruptible(ctx)
	defer end()
	vm := m.Snapshot()
	saved := vm.GetStatus().GetImage()
	if vm.GetStatus().GetState() == lifecycle.Saved && !o.Cold && saved != nil {
		return a.startSaved(ctx, m, o, progress)
	}
	message := ""
	if saved != nil {
		message = "booted afresh: the image in " + saved.GetPath() + " is no longer its"
	}
	boot := &launch{Launcher: a.Launcher, wanted: wanted{m: m, spec: vm.GetSpec(), paused: o.Paused}, progress: progress}
	if err := boot.run(ctx, message); err != nil {
		return nil, err
	}
	return m.Snapshot(), nil
}
