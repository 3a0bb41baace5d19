package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// quitTime is how long a VMM whose guest is saved may take to end by itself.
const quitTime = 5 * time.Second

// beginCommit carries out the rest of a save, also if the agent is lost now.
func (s *saves) beginCommit(c *conn, args *shim.Commit) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.running()
	switch {
	case err != nil:
		return nil, err
	case s.prepared == nil || s.prepared.owner != c:
		return nil, fault.Precondition("nothing to commit: no save was prepared on this connection, or it was aborted")
	}
	p := s.prepared
	op, err := s.begin("commit", nil)
	if err != nil {
		return nil, err
	}
	p.expire.Stop()
	s.prepared = nil
	return func() (any, error) { return s.commit(op, v, p, args.KeepRunning) }, nil
}

func (s *saves) commit(op *operation, v *vm, p *prepared, keepRunning bool) (any, error) {
	faultpoint.Reach("shim.commit.begun")
	// Not the operation's context: nothing short of a failure stops it now.
	if err := p.image.Commit(context.Background(), p.manifest); err != nil {
		s.log.Error("commit failed", "directory", p.directory, "error", err)
		err = errors.Join(err, s.rollback.undoSave(v, p))
		s.finish(op, func() {})
		return nil, err
	}
	closeBehind(p.parent)
	faultpoint.Reach("shim.commit.placed")
	if err := s.run.Remove(shim.SavingName); err != nil {
		s.log.Warn("failed to remove the note of a save", "error", err)
	}
	s.log.Info("image committed", "directory", p.directory, "image", p.manifest.ID, "keepRunning", keepRunning)
	if keepRunning {
		return s.goOn(op, v, p)
	}
	s.mu.Lock()
	v.saved = &savedIn{p.directory, p.manifest.ID}
	s.mu.Unlock()
	s.quit(v)
	faultpoint.Reach("shim.commit.quit")
	s.finish(op, func() {})
	<-s.ended
	return shim.Committed{Exit: s.exit}, nil
}

func (s *saves) goOn(op *operation, v *vm, p *prepared) (any, error) {
	err := s.rollback.resume(v, p)
	stopped := time.Since(p.since)
	faultpoint.Reach("shim.commit.resumed")
	s.finish(op, func() {})
	if err != nil {
		return nil, contract.Errorf("the image in %s is whole, but %w", contract.ObjectName(p.directory), err)
	}
	if !p.ran {
		stopped = 0
	}
	return shim.Committed{Stopped: stopped}, nil
}

// quit ends a VMM whose guest is saved, and returns when it is gone. Beside it the kernel takes
// back the guest's memory, which otherwise the VMM's end and then the shim would wait for.
func (s *saves) quit(v *vm) {
	if v.ram != nil {
		var emptying sync.WaitGroup
		defer emptying.Wait()
		emptying.Go(func() {
			if err := memory.Empty(v.ram); err != nil {
				s.log.Warn("failed to give the guest's memory back before the VMM's end", "error", err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), quitTime)
	defer cancel()
	if err := v.machine().Quit(ctx); err != nil {
		s.log.Warn("failed to ask the VMM to end: killing it, its guest is saved", "error", err)
		cancel()
	}
	select {
	case <-v.proc().done:
		return
	case <-ctx.Done():
	}
	if err := v.proc().kill(); err != nil {
		s.log.Error("failed to end the VMM", "error", err)
	}
	<-v.proc().done
}
