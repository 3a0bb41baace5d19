package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// rollback is the room for saves that are undone: what they have written is removed, and the guest
// goes on.
type rollback struct {
	*session
	clearing string // the folder of a save that is being removed; guarded by mu
}

// clear removes what a save has written. Where the disk doesn't answer that is left to
// the background after a moment, and no other save begins until it is done.
func (s *rollback) clear(p *prepared) error {
	s.mu.Lock()
	s.clearing = p.directory
	s.mu.Unlock()
	cleared := make(chan error, 1)
	go func() { cleared <- s.abort(p) }()
	timer := time.NewTimer(s.o.ClearWithin)
	defer timer.Stop()
	select {
	case err := <-cleared:
		return err
	case <-timer.C:
	}
	go func() {
		err := <-cleared
		s.log.Info("the disk answers again: what a save had written is removed", "directory", p.directory, "error", err)
	}()
	return contract.Errorf("%s: the disk has not answered for %v: what was written there is removed when it does, and until then this VM can't be saved again",
		contract.ObjectName(p.directory), s.o.ClearWithin)
}

// abort waits for what was left behind at the image, and removes the image.
func (s *rollback) abort(p *prepared) (err error) {
	if p.hanging != nil {
		<-p.hanging
	}
	if p.image != nil {
		err = p.image.Abort()
	}
	closeBehind(p.parent)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearing = ""
	if p.image != nil && err == nil && s.exit == nil { // else the run folder may be closed
		err = s.run.Remove(shim.SavingName)
	}
	return err
}

// undoSave lets the guest go on if it ran, and removes what was written.
func (s *rollback) undoSave(v *vm, p *prepared) error {
	err := s.resume(v, p)
	faultpoint.Reach("shim.save.resumed")
	return errors.Join(err, s.clear(p))
}

// resumeTries are made to let a guest go on: a disk may be locked by another
// process for a moment.
const resumeTries = 3

func (s *rollback) resume(v *vm, p *prepared) (err error) {
	defer func() { go trimMemory(s.log) }() // not while the guest is paused
	proceed := s.proceed
	if !p.ran || s.damagedSince(p) {
		proceed = func(ctx context.Context, v *vm) error { return s.regain(ctx, v, p) }
	}
	for try := range resumeTries {
		if v.proc().ended() || try > 0 && !s.pause(100*time.Millisecond<<try) {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		err = proceed(ctx, v)
		cancel()
		if err == nil {
			return s.stopDamaged(v, p)
		}
		if errors.Is(err, control.ErrMonitorClosed) {
			if v.proc().endsSoon() {
				return nil // which is told elsewhere
			}
			break // without a monitor it is unknown again
		}
		s.log.Error("failed to resume the guest", "error", err, "try", try+1)
		if fault.Of(err).Code == shim.CodeChangedDisk {
			break
		}
	}
	return fmt.Errorf("the guest is paused: continuing it failed: %w", err)
}

// regain has the VMM take back its disks, and keeps the guest paused.
func (s *rollback) regain(ctx context.Context, v *vm, p *prepared) error {
	if p.since.IsZero() { // the save has not come to the guest
		return v.machine().Regain(ctx)
	}
	if err := s.checkHeld(ctx, v); err != nil {
		return err
	}
	if err := v.machine().Regain(ctx); err != nil {
		return err
	}
	return s.holdAgain(ctx, v)
}

// damagedSince says whether the guest was to be paused for good during a save.
func (s *rollback) damagedSince(p *prepared) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damagedAt.After(p.since)
}

// stopDamaged stops a guest again that went on just when it was to be paused.
func (s *rollback) stopDamaged(v *vm, p *prepared) error {
	if !s.damagedSince(p) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	_, err := v.machine().Stop(ctx)
	return err
}

// discard undoes a save that took waited for its commit.
func (s *rollback) discard(op *operation, v *vm, p *prepared) {
	if err := s.undoSave(v, p); err != nil {
		s.log.Error("failed to abort a save", "error", err)
	}
	s.finish(op, func() {})
}

func (s *rollback) expired(p *prepared) {
	s.mu.Lock()
	if s.prepared != p || s.op != nil {
		s.mu.Unlock()
		return
	}
	op, v := s.takePrepared(), s.vm
	s.mu.Unlock()
	s.log.Warn("no commit has come: the guest goes on", "directory", p.directory, "after", s.o.CommitWithin)
	s.discard(op, v, p)
}

// beginAbort ends what the connection has under way.
func (s *rollback) beginAbort(c *conn) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op := s.op; op != nil && op.owner == c {
		return func() (any, error) {
			op.end(fault.ErrAborted)
			<-op.done
			return nil, nil
		}, nil
	}
	p, v := s.prepared, s.vm
	if p == nil || p.owner != c || s.op != nil {
		return func() (any, error) { return nil, nil }, nil
	}
	op := s.takePrepared()
	return func() (any, error) {
		err := s.undoSave(v, p)
		s.finish(op, func() {})
		return nil, err
	}, nil
}

func (s *rollback) dropPrepared(p *prepared) {
	if p == nil {
		return
	}
	p.expire.Stop()
	if err := s.clear(p); err != nil {
		s.log.Error("failed to remove an unfinished image", "error", err)
	}
}
