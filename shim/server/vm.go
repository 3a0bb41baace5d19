package server

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/shim/internal/display"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// vm is a VMM that was launched, with all that belongs to it.
type vm struct {
	plan    *plan.Plan
	proc    *process
	machine control.Machine
	console *console.Console
	display display.Display
	ram     *os.File // nil: private to the VMM
	freeRAM func() error
	disks   []watchedDisk
	// imageBytes of data in the image that private RAM is mapped from.
	imageBytes uint64
	keep       json.RawMessage // the agent's own
	// grace that the guest has after a signal; nil: the shim's.
	grace      *time.Duration
	undo       undo.Stack
	leases     leases
	background sync.WaitGroup // what uses the image
	freezing   sync.Mutex     // held while its agent freezes or thaws
	verified   chan struct{}  // closed when the image was looked through; nil: RAM is from none

	// The rest is guarded by Server.mu.
	ended     bool // nothing can be begun with it any more
	killed    bool
	graceOver bool
	saved     *savedIn
	stopping  *stopping
	plugs     plugs
	freeze    freeze
}

// savedIn is the image that a VM ended in.
type savedIn struct{ directory, id string }

// lastRead is how long a VMM's closed sockets may take to be read to their ends.
const lastRead = 2 * time.Second

// watch waits for the VMM's end, writes down how it was and cleans up after it.
func (s *Server) watch(v *vm) {
	<-v.proc.done
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
	exit := s.classify(v, v.machine.Ending(ctx))
	// Written down first: what follows may take long, and be cut short.
	s.record(exit)
	faultpoint.Reach("shim.end.recorded")
	if err := v.undo.Run(); err != nil {
		s.log.Error("clean up after the VMM", "error", err)
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
	for c := range s.conns {
		c.event(shim.Event{Exit: exit})
	}
	close(s.ended)
}

// settle waits for the end of what is under way with a VM whose VMM is gone,
// and removes what a save has written that waited for its commit.
func (s *Server) settle(v *vm) {
	for {
		s.mu.Lock()
		v.ended = true
		op, p := s.op, s.prepared
		if op == nil {
			s.prepared = nil
		}
		s.mu.Unlock()
		if op == nil {
			s.dropPrepared(p)
			return
		}
		op.end(v.proc.failure())
		<-op.done // another may have begun since: to abort a save
	}
}

func (s *Server) dropPrepared(p *prepared) {
	if p == nil {
		return
	}
	p.expire.Stop()
	if err := s.clear(p); err != nil {
		s.log.Error("remove an unfinished image", "error", err)
	}
}

func (s *Server) classify(v *vm, ending control.Ending) *shim.Exit {
	code, signal := v.proc.status()
	exit := &shim.Exit{
		Reason:    shim.ReasonCrashed,
		Time:      time.Now().UTC(),
		Code:      code,
		Signal:    signal,
		LastWords: v.proc.words.Lines(lastWords),
		RunID:     s.o.RunID,
	}
	clean := code == 0 || ending.Closed
	if clean && code != 0 {
		s.log.Warn("the VMM failed when it had put the VM away", "code", code, "signal", signal, "words", exit.LastWords)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.saved != nil:
		exit.Reason = shim.ReasonSaved
		exit.ImageDirectory, exit.ImageID = v.saved.directory, v.saved.id
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

// record writes exit.json.
func (s *Server) record(exit *shim.Exit) {
	if err := writeJSON(s.state, shim.ExitName, exit); err != nil {
		s.log.Error("write down how the VMM ended", "error", err, "reason", exit.Reason)
	}
}

func (s *Server) welcome() shim.Welcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := shim.Welcome{
		Major:     shim.VersionMajor,
		Minor:     shim.VersionMinor,
		PID:       os.Getpid(),
		Launching: s.op != nil && s.op.name == opLaunch,
		Saving:    s.saving(),
		Damaged:   s.damaged,
		Exit:      s.exit,

		Credentials: s.credentials,
	}
	if s.vm != nil {
		w.VMMPID, w.Keep = s.vm.proc.pid, s.vm.keep
		w.Notes = s.vm.plugs.texts()
	}
	if s.o.Pod != nil {
		w.Pod = &shim.Pod{RunDir: s.o.RunDir, RunID: s.o.RunID, StateDir: s.o.Pod.StateDir}
	}
	return w
}

// running returns the VM, or an error if none runs; s.mu is held.
func (s *Server) running() (*vm, error) {
	switch {
	case s.vm == nil && s.op != nil:
		return nil, fault.Precondition("the VMM is still being started")
	case s.vm == nil:
		return nil, fault.Precondition("no VMM was started")
	case s.vm.ended:
		return nil, fault.Precondition("the VMM has ended")
	}
	return s.vm, nil
}

// lost aborts what only the agent of a connection that has ended could have
// brought to its end.
func (s *Server) lost(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.op != nil && s.op.owner == c {
		s.op.end(fault.ErrGone)
	}
	p, v := s.prepared, s.vm
	if p == nil || p.owner != c || s.op != nil {
		s.checkIdle()
		s.mu.Unlock()
		return
	}
	op := s.takePrepared()
	s.mu.Unlock()
	s.log.Warn("agent lost before it has committed a save: the guest goes on", "directory", p.directory)
	s.discard(op, v, p)
}

func (s *Server) attach(args *shim.Console) (work, error) {
	s.mu.Lock()
	v, err := s.running()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return func() (any, error) {
		f, err := v.console.Attach(args.Backlog)
		if err != nil {
			return nil, fault.Precondition("%v", err)
		}
		return f, nil
	}, nil
}

func (s *Server) beginRelease(args *shim.Release) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.op != nil || s.vm != nil && s.exit == nil {
		return nil, fault.Precondition("the shim has a VMM: stop or kill it")
	}
	return func() (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.op == nil && s.vm == nil {
			s.refusal = args.Refusal()
			s.release()
		}
		return nil, nil
	}, nil
}
