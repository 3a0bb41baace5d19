package server

import (
	"context"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

// lastRead is how long a VMM's closed sockets may take to be read to their ends.
const lastRead = 2 * time.Second

// watch waits for the VMM's end, writes down how it was and cleans up after it.
func (s *ender) watch(v *vm) {
	s.await(v)
	s.settle(v)

	faultpoint.Reach("shim.end.settled")
	// At once: the kernel may have killed the VMM because memory ran out, and kills the next
	// one unless this becomes free. It may take long: the undo waits for it.
	if v.ram != nil {
		go func() { _ = v.freeRAM() }() // the undo has the error
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastRead)
	defer cancel()
	select {
	case <-v.console.Done():
	case <-ctx.Done():
	}
	exit := s.classify(v, v.machine().Ending(ctx))
	// Written down first: what follows may take long, and be cut short.
	s.record(exit)
	faultpoint.Reach("shim.end.recorded")
	if err := v.undo.Run(); err != nil {
		s.log.Error("failed to clean up after the VMM", "error", err)
	}
	faultpoint.Reach("shim.end.undone")
	s.log.Info("VMM ended", "reason", exit.Reason, "code", exit.Code, "signal", exit.Signal)

	s.mu.Lock()
	defer s.mu.Unlock()
	if v.stopping != nil {
		v.stopping.timer.Stop()
	}
	v.freeze.end()
	s.exit = exit
	s.closing = true
	s.tell(shim.Event{Exit: exit}, nil)
	close(s.ended)
}

// await returns when the VM's VMM has ended, and no other has taken its place or is about to.
func (s *ender) await(v *vm) {
	for {
		p := v.proc()
		<-p.done
		s.mu.Lock()
		renewal := v.handing
		v.ended = v.proc() == p && renewal == nil
		over := v.ended
		s.mu.Unlock()
		if over {
			close(v.gone)
			return
		}
		if renewal != nil {
			<-renewal.done
		}
	}
}

// attend ends a VMM one of whose companions has ended before it: the guest's device is gone. One that the
// VMM takes with it at its own end is no reason.
func (s *ender) attend(v *vm, c *companion) {
	select {
	case <-c.proc.done:
	case <-v.gone:
		return
	}
	if v.proc().endsSoon() {
		return
	}
	err := c.failure()
	s.mu.Lock()
	v.bereft = err
	s.mu.Unlock()
	s.log.Error("a process beside the VMM has ended, and the VMM can't do without it: killing the VMM", "name", c.what.Name, "error", err)
	if err := v.proc().kill(); err != nil {
		s.log.Error("failed to kill the VMM", "error", err)
	}
}

// settle waits for the end of what is under way with a VM whose VMM is gone,
// and removes what a save has written that waited for its commit.
func (s *ender) settle(v *vm) {
	for {
		s.mu.Lock()
		v.ended = true
		op, p := s.op, s.prepared
		if op == nil {
			s.prepared = nil
		}
		s.mu.Unlock()
		if op == nil {
			s.rollback.dropPrepared(p)
			return
		}
		op.end(v.proc().failure())
		<-op.done // another may have begun since: to abort a save
	}
}

func (s *ender) classify(v *vm, ending control.Ending) *shim.Exit {
	code, signal := v.proc().status()
	exit := &shim.Exit{
		Reason:    shim.ReasonCrashed,
		Time:      time.Now().UTC(),
		Code:      code,
		Signal:    signal,
		LastWords: v.proc().words.Lines(lastWords),
		RunID:     s.o.RunID,
	}
	clean := code == 0 || ending.Closed
	if clean && code != 0 {
		s.log.Warn("the VMM failed when it had put the VM away", "code", code, "signal", signal, "words", exit.LastWords)
	}
	if exit.LastWords != "" {
		exit.Parts = []contract.Fault{{Object: objectIn(v.plan, exit.LastWords), Text: exit.LastWords}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.saved != nil:
		exit.Reason = shim.ReasonSaved
		exit.ImageDirectory, exit.ImageID = v.saved.directory, v.saved.id
	case v.bereft != nil: // it has crashed, and this is why
		exit.LastWords = v.bereft.Error() + "\n" + exit.LastWords
		exit.Parts = append(contract.FaultsOf(v.bereft), exit.Parts...)
	case ending.Panicked && signal == "":
		exit.Reason = shim.ReasonPanicked
	case ending.Shutdown && ending.Suspended && clean:
		exit.Reason = shim.ReasonSuspended
	case ending.Shutdown && clean:
		exit.Reason = shim.ReasonShutdown
	case v.killed, ending.Told && clean:
		exit.Reason = shim.ReasonKilled
		exit.GraceOver = v.graceOver
	}
	return exit
}
