package vm

import (
	"context"

	"github.com/vmlet/vmlet/agent/place"
)

// sweep takes back what belongs to no VM that runs.
func (a *Adopter) sweep() {
	keep := make(map[string]bool)
	for _, m := range a.vms.All() {
		m.mu.Lock()
		keep[m.name] = m.live != nil || m.lost != nil || a.own.Leased(m.name)
		m.mu.Unlock()
	}
	for _, name := range a.orphans() {
		keep[name] = true
	}
	swept, err := a.own.Host.Sweep(func(vm string) bool { return keep[vm] })
	if len(swept) > 0 {
		a.log.Info("swept what VMs left that don't run", "vms", swept)
	}
	if err != nil {
		a.log.Error("failed to remove what VMs that don't run have left", "error", err)
	}
}

// orphans are shims that run, or may, though nothing is known of their VM. They are
// left alone; other run folders without a VM are removed.
func (a *Adopter) orphans() (running []string) {
	names, err := a.own.Store.RunNames()
	if err != nil {
		a.log.Error("failed to list run directories", "error", err)
		return nil
	}
	for _, name := range names {
		if _, err := a.vms.Get(a.tasks.ctx, name); err == nil {
			continue
		}
		process, err := place.RunningShim(a.own.Shims.Process(a.own.Store.RunDir(name)))
		switch {
		case err != nil:
			a.log.Error("whether a shim runs whose VM has no record is not known: its folder is left alone", "vm", name, "error", err)
		case process == nil:
			if a.sweepRunDir(name); !a.own.Leased(name) {
				continue
			}
		default:
			a.log.Error("a shim runs whose VM has no record: the agent leaves it running", "vm", name, "pid", process.PID())
			process.Close()
		}
		a.claimUser(name)
		running = append(running, name)
	}
	return running
}

// sweepRunDir removes a run folder without a VM, unless what its lease names could not be
// taken back.
func (a *Adopter) sweepRunDir(name string) {
	ctx, cancel := context.WithTimeout(a.tasks.ctx, adoptPatience)
	defer cancel()
	l, err := place.ReadLease(a.own.Store.RunDir(name))
	if err == nil {
		err = a.own.At(name).GiveBack(ctx, l)
	} else {
		err = a.own.Store.RemoveRunDir(name)
	}
	if err != nil {
		a.log.Error("failed to remove what a VM without a record has left", "vm", name, "error", err)
	}
}
