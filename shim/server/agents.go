package server

import (
	"os"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

func (s *Server) welcome() shim.Welcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := shim.Welcome{
		Major:     shim.VersionMajor,
		Minor:     shim.VersionMinor,
		PID:       os.Getpid(),
		Launching: s.op != nil && s.op.name == opLaunch,
		Saving:    s.saving(),
		Damaged:   s.damaged, DamagedParts: s.damagedParts,
		Exit: s.exit,

		Credentials: s.guests.credentials,
		Renews:      true,
	}
	if s.vm != nil {
		w.VMMPID, w.Keep = s.vm.proc().pid, s.vm.keep
		w.Notes = s.vm.plugs.texts()
	}
	if s.o.Pod != nil {
		w.Pod = &shim.Pod{RunDir: s.o.RunDir, RunID: s.o.RunID, StateDir: s.o.Pod.StateDir}
	}
	return w
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
	s.rollback.discard(op, v, p)
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
