package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
)

// ended notes how a VMM ended and gives back what it had. When it returns the
// VM can be started again.
func (s *supervisor) ended(m *VM, l *live, exit *shim.Exit) {
	faultpoint.Reach("agent.end.heard")
	l.swap(nil)
	s.giveBack(m, l.lease)
	faultpoint.Reach("agent.end.given-back")
	l.shim.Close()
	m.mu.Lock()
	m.live = nil
	m.mu.Unlock()
	noteEnd(m, exit)
	faultpoint.Reach("agent.end.noted")
	l.exit = exit
	close(l.over)
}

// giveBack waits for the shim's process to end and takes back what a run had
// of the host. What can't be is logged, and kept for the VM's next start or deletion, or
// the agent's next start.
func (s *supervisor) giveBack(m *VM, l *place.Lease) {
	ctx, cancel := l.Ending(context.WithoutCancel(s.tasks.ctx))
	defer cancel()
	err := place.WaitForShim(ctx, m.place)
	if err == nil { // else what it has is still in use
		err = m.keeper.GiveBack(ctx, l)
	}
	if err != nil {
		m.log.Error("failed to release the VM's host resources", "error", err)
	}
}

// noteEnd writes down how a VM ended.
func noteEnd(m *VM, exit *shim.Exit) {
	state, reason, why := verdict(exit)
	at := exit.Time
	if at.IsZero() {
		at = time.Now()
	}
	// The VMM's own word of it may come after its end, when nobody listens any more.
	if exit.Reason == shim.ReasonPanicked && !m.Snapshot().GetStatus().GetGuest().GetPanicked() {
		m.panics.Add(1)
	}
	m.note(state, why.Error(), func(vm *nodev1.VirtualMachine) {
		if state == lifecycle.Crashed {
			vm.Status.Faults = fault.Parts(why)
		}
		vm.Status.EndedAt = stamp(at)
		vm.Status.EndReason = reason
		vm.Status.Process = nil
		panicked := vm.Status.Guest.GetPanicked() || exit.Reason == shim.ReasonPanicked
		vm.Status.Guest = &nodev1.GuestStatus{Panicked: panicked}
		vm.Status.Image = nil
		if state == lifecycle.Saved {
			vm.Status.Image = &nodev1.ImageReference{Path: fault.Clip(exit.ImageDirectory, MaxPath), ImageId: fault.Clip(exit.ImageID, MaxVersion)}
		}
	})
}

// verdict says what a VM is after it has ended so, and why: as a reason and in words.
func verdict(exit *shim.Exit) (lifecycle.State, nodev1.EndReason, error) {
	how := fmt.Sprintf("exit status %d", exit.Code)
	if exit.Signal != "" {
		how = "signal " + exit.Signal
	}
	if exit.Signal == "SIGKILL" {
		how += ", from somebody or, where memory ran out, from the kernel: see dmesg"
	}
	switch exit.Reason {
	case shim.ReasonShutdown:
		return lifecycle.Stopped, nodev1.EndReason_END_REASON_SHUTDOWN, errors.New("the guest shut down")
	case shim.ReasonSuspended:
		return lifecycle.Stopped, nodev1.EndReason_END_REASON_SUSPENDED, errors.New("the guest suspended itself to disk")
	case shim.ReasonKilled:
		if exit.GraceOver {
			return lifecycle.Stopped, nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER, errors.New("killed: the guest did not shut down within its grace period")
		}
		return lifecycle.Stopped, nodev1.EndReason_END_REASON_KILLED, errors.New("killed")
	case shim.ReasonSaved:
		return lifecycle.Saved, nodev1.EndReason_END_REASON_SAVED, errors.New("saved to " + exit.ImageDirectory)
	case shim.ReasonPanicked:
		return lifecycle.Crashed, nodev1.EndReason_END_REASON_PANICKED, errors.New("the guest panicked")
	}
	const crashed = nodev1.EndReason_END_REASON_CRASHED
	said := &contract.Quoted{Sentence: exit.LastWords, Parts: exit.Parts}
	switch {
	case exit.LastWords == "":
		return lifecycle.Crashed, crashed, errors.New("the VMM ended unexpectedly, " + how)
	case exit.Code == 0 && exit.Signal == "":
		return lifecycle.Crashed, crashed, contract.Errorf("the VMM ended unexpectedly: %w", said)
	}
	return lifecycle.Crashed, crashed, contract.Errorf("the VMM ended unexpectedly (%s); the last that it said: %w", how, said)
}

// exitOf reads how a run ended, as its shim wrote it down. A shim that was
// killed just after a commit has written nothing, but the image is there.
func exitOf(m *VM, run string) *shim.Exit {
	exit, err := shim.ReadExit(m.place.StateDir())
	if err == nil && exit.RunID == run {
		return exit
	}
	if intent := m.Snapshot().GetStatus().GetImage(); intent != nil && m.keeper.HasImage(intent) {
		return &shim.Exit{
			Reason: shim.ReasonSaved, Time: time.Now(), RunID: run,
			ImageDirectory: intent.GetPath(), ImageID: intent.GetImageId(),
		}
	}
	return &shim.Exit{Reason: shim.ReasonCrashed, Time: time.Now(), RunID: run, LastWords: "the VM's shim ended without a word: was it killed?"}
}

// MaxPath bounds a path that a shim says, in bytes with its end (PATH_MAX, limits.h).
const MaxPath = 4096

// MaxVersion bounds the version of a VMM and the id of an image, in bytes: they are shown.
const MaxVersion = 128

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
