package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// A shim is lost if it runs and does not answer, or if it isn't known whether it runs.
// It is not killed: its guest may be well, and only a person can tell. Nothing that it
// has of the host is touched.

// unseen stands for a shim that may or may not run, as when there was no
// descriptor left to look at it with. Anyone who kills it has it looked for again.
type unseen struct {
	look func() (place.ShimProcess, error)
}

func (*unseen) PID() int     { return 0 }
func (*unseen) Alive() bool  { return true }
func (*unseen) Close() error { return nil }

func (u *unseen) Kill() error { return u.found(place.ShimProcess.Kill) }

func (u *unseen) Wait(ctx context.Context) error {
	return u.found(func(p place.ShimProcess) error { return p.Wait(ctx) })
}

func (u *unseen) found(do func(place.ShimProcess) error) error {
	p, err := place.RunningShim(u.look())
	if p == nil {
		return err
	}
	defer p.Close()
	return do(p)
}

// plight says what is the matter with a shim that is lost.
func plight(p place.ShimProcess) string {
	if p.PID() == 0 {
		return "whether its shim runs is not known"
	}
	return fmt.Sprintf("its shim, process %d, runs but does not answer", p.PID())
}

// noter is how a state is written down: VM.note, adoption.observe.
type noter func(s lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine))

// lose notes in a VM that its shim is lost.
func (s *supervisor) lose(m *VM, p place.ShimProcess, why error, note noter) {
	m.mu.Lock()
	m.live, m.lost = nil, p
	m.mu.Unlock()
	note(lifecycle.Crashed, fmt.Sprintf("%s (%v): kill the VM to start it again", plight(p), why))
	s.tasks.Go(func() { s.awaitLost(m, p) })
}

// giveUp notes a shim that was lost while it was watched.
func (s *supervisor) giveUp(m *VM, l *live, process place.ShimProcess, err error) {
	l.swap(nil)
	s.lose(m, process, err, m.note)
	close(l.over)
}

// lost notes a shim that is lost when the agent comes back.
func (ad *adoption) lost(process place.ShimProcess, err error) {
	ad.supervisor.findDisks(ad.m)
	ad.supervisor.lose(ad.m, process, err, ad.observe)
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

// awaitLost notes the end of a lost shim that ends by itself.
func (s *supervisor) awaitLost(m *VM, process place.ShimProcess) {
	if place.WaitForShim(s.tasks.ctx, m.place) != nil {
		return // the agent ends, or it isn't known
	}
	err := endLost(s.tasks.ctx, m, process, func() (note func(), err error) {
		l, err := place.ReadLease(m.place.RunDir())
		if err != nil {
			l = new(place.Lease) // how it ended is unknown
		}
		exit := exitOf(m, l.RunID)
		return func() { noteEnd(m, exit) }, nil
	})
	if err != nil {
		m.log.Debug("a lost shim has ended", "error", err)
	}
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
	if err := m.sweep(context.WithoutCancel(ctx)); err != nil {
		m.log.Error("failed to release the VM's host resources", "error", err)
	}
	m.mu.Lock()
	m.lost = nil
	m.mu.Unlock()
	note()
	return process.Close()
}
