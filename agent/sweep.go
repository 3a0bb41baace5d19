package agent

import "errors"

// sweep takes back what belongs to no VM that runs.
func (a *agent) sweep() {
	keep := make(map[string]bool)
	for _, m := range a.all() {
		m.mu.Lock()
		keep[m.name] = m.live != nil || m.lost != nil
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
func (a *agent) orphans() (running []string) {
	names, err := a.store.RunNames()
	if err != nil {
		a.log.Error("listing run folders", "error", err)
		return nil
	}
	for _, name := range names {
		if _, err := a.machine(name); err == nil {
			continue
		}
		process, err := standing(a.shims.Process(a.store.RunDir(name)))
		switch {
		case err != nil:
			a.log.Error("whether a shim runs whose VM has no record is not known: its folder is left alone", "vm", name, "error", err)
		case process == nil:
			a.sweepRunDir(name)
			continue
		default:
			a.log.Error("a shim runs whose VM has no record: end it by hand", "vm", name, "pid", process.PID())
			process.Close()
		}
		a.claimUser(name)
		running = append(running, name)
	}
	return running
}

func (a *agent) sweepRunDir(name string) {
	err := error(nil)
	if l, errLease := readLease(a.store.RunDir(name)); errLease == nil {
		err = ownHome{a, name}.giveBack(l)
	}
	if err := errors.Join(err, a.store.RemoveRunDir(name)); err != nil {
		a.log.Error("removing a run folder without a VM", "vm", name, "error", err)
	}
}
