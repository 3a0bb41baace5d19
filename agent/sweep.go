package agent

import (
	"context"
	"os"
	"path/filepath"
)

// sweep takes back what belongs to no VM that runs.
func (a *Manager) sweep() {
	keep := make(map[string]bool)
	for _, m := range a.All() {
		m.mu.Lock()
		keep[m.name] = m.live != nil || m.lost != nil || a.leased(m.name)
		m.mu.Unlock()
	}
	for _, name := range a.orphans() {
		keep[name] = true
	}
	swept, err := a.host.Sweep(func(vm string) bool { return keep[vm] })
	if len(swept) > 0 {
		a.log.Info("swept what VMs left that don't run", "vms", swept)
	}
	if err != nil {
		a.log.Error("sweeping", "error", err)
	}
}

// orphans are shims that run, or may, though nothing is known of their VM. They are
// left alone; other run folders without a VM are removed.
func (a *Manager) orphans() (running []string) {
	names, err := a.store.RunNames()
	if err != nil {
		a.log.Error("listing run folders", "error", err)
		return nil
	}
	for _, name := range names {
		if _, err := a.Get(name); err == nil {
			continue
		}
		process, err := standing(a.shims.Process(a.store.RunDir(name)))
		switch {
		case err != nil:
			a.log.Error("whether a shim runs whose VM has no record is not known: its folder is left alone", "vm", name, "error", err)
		case process == nil:
			if a.sweepRunDir(name); !a.leased(name) {
				continue
			}
		default:
			a.log.Error("a shim runs whose VM has no record: end it by hand", "vm", name, "pid", process.PID())
			process.Close()
		}
		a.claimUser(name)
		running = append(running, name)
	}
	return running
}

// leased reports whether a VM has a lease: it runs, or what its last run had of the host
// could not be taken back.
func (a *Manager) leased(name string) bool {
	_, err := os.Lstat(filepath.Join(a.store.RunDir(name), leaseName))
	return err == nil
}

// sweepRunDir removes a run folder without a VM, unless what its lease names could not be
// taken back.
func (a *Manager) sweepRunDir(name string) {
	ctx, cancel := context.WithTimeout(a.ctx, adoptPatience)
	defer cancel()
	l, err := readLease(a.store.RunDir(name))
	if err == nil {
		err = OnNode{a, name}.giveBack(ctx, l)
	} else {
		err = a.store.RemoveRunDir(name)
	}
	if err != nil {
		a.log.Error("failed to remove what a VM without a record has left", "vm", name, "error", err)
	}
}
