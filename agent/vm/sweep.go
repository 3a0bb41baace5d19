package vm

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/agent/place"
)

// sweeper takes back what VMs have left that don't run.
type sweeper struct {
	vms   *Registry
	tasks *background
	own   *place.Resources
	log   *slog.Logger
}

// sweep takes back what belongs to no VM that runs.
func (s *sweeper) sweep() {
	keep := make(map[string]bool)
	for _, m := range s.vms.All() {
		m.mu.Lock()
		keep[m.name] = m.live != nil || m.lost != nil || s.own.Leased(m.name)
		m.mu.Unlock()
	}
	for _, name := range s.orphans() {
		keep[name] = true
	}
	swept, err := s.own.Host.Sweep(func(vm string) bool { return keep[vm] })
	if len(swept) > 0 {
		s.log.Info("swept what VMs left that don't run", "vms", swept)
	}
	if err != nil {
		s.log.Error("failed to remove what VMs that don't run have left", "error", err)
	}
}

// orphans are shims that run, or may, though nothing is known of their VM. They are
// left alone; other run folders without a VM are removed.
func (s *sweeper) orphans() (running []string) {
	names, err := s.own.Store.RunNames()
	if err != nil {
		s.log.Error("failed to list run directories", "error", err)
		return nil
	}
	for _, name := range names {
		if _, err := s.vms.Get(s.tasks.ctx, name); err == nil {
			continue
		}
		process, err := place.RunningShim(s.own.Shims.Process(s.own.Store.RunDir(name)))
		switch {
		case err != nil:
			s.log.Error("whether a shim runs whose VM has no record is not known: its folder is left alone", "vm", name, "error", err)
		case process == nil:
			if s.sweepRunDir(name); !s.own.Leased(name) {
				continue
			}
		default:
			s.log.Error("a shim runs whose VM has no record: the agent leaves it running", "vm", name, "pid", process.PID())
			process.Close()
		}
		s.claimUser(name)
		running = append(running, name)
	}
	return running
}

// sweepRunDir removes a run folder without a VM, unless what its lease names could not be
// taken back.
func (s *sweeper) sweepRunDir(name string) {
	ctx, cancel := context.WithTimeout(s.tasks.ctx, adoptPatience)
	defer cancel()
	l, err := place.ReadLease(s.own.Store.RunDir(name))
	if err == nil {
		err = s.own.At(name).GiveBack(ctx, l)
	} else {
		err = s.own.Store.RemoveRunDir(name)
	}
	if err != nil {
		s.log.Error("failed to remove what a VM without a record has left", "vm", name, "error", err)
	}
}

// claimUser sees that nobody else gets the user id of a VM that can't be adopted and
// may run, or has left something that does.
func (s *sweeper) claimUser(name string) {
	l, err := place.ReadLease(s.own.Store.RunDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = s.own.Host.ClaimUser(l.UID, name)
	}
	if err != nil {
		s.log.Error("failed to claim a VM's user ID", "vm", name, "error", err)
	}
}

// adoptPatience is how long a shim and its VMM may take to answer an agent that
// has come back.
const adoptPatience = 15 * time.Second
