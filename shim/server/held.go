package server

import (
	"context"

	"github.com/vmlet/vmlet/disk"
)

// heldDisks are those that must not have changed when the guest goes on.
func (s *session) heldDisks(v *vm) []watchedDisk {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []watchedDisk
	for _, d := range v.disks {
		if d.held != nil {
			held = append(held, d)
		}
	}
	return held
}

// hold notes what the disks are while the guest is paused and its VMM may let others
// write to them.
func (s *session) hold(v *vm, ids []disk.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ids {
		v.disks[i].held = &ids[i]
	}
}

// unhold is for a guest that runs.
func (s *session) unhold(v *vm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v.disks {
		v.disks[i].held = nil
	}
}

// holdAgain is hold for a VMM that has just opened its disks: it may have written to the
// metadata of an image by itself.
func (s *session) holdAgain(ctx context.Context, v *vm) error {
	disks := v.disks
	ids, err := within(ctx, func() ([]disk.Identity, error) { return identify(disks) })
	if err == nil {
		s.hold(v, ids)
	}
	return err
}

// checkHeld refuses to let a guest go on whose memory belongs to disks as they were.
func (s *session) checkHeld(ctx context.Context, v *vm) error {
	held := s.heldDisks(v)
	if len(held) == 0 {
		return nil
	}
	_, err := within(ctx, func() (struct{}, error) { return struct{}{}, unchanged(held) })
	return err
}

// proceed lets a guest run if its disks are as its memory has them.
func (s *session) proceed(ctx context.Context, v *vm) error {
	if err := s.checkHeld(ctx, v); err != nil {
		return err
	}
	if err := v.machine().Continue(ctx); err != nil {
		return err
	}
	s.unhold(v)
	return nil
}
