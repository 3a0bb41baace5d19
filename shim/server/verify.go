package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// verify looks through a lazily restored VM's image, and stops the guest if it
// is damaged: what it reads from there may be anything.
func (s *launcher) verify(ctx context.Context, v *vm, img *memory.Image) {
	err := verifyLazily(ctx, img, s.log)
	trimMemory(s.log)
	if err == nil || ctx.Err() != nil {
		return
	}
	s.log.Error("the image that guest RAM is mapped from is damaged: pausing the guest", "error", err)
	// Noted before, so that a save under way does not let it go on.
	s.mu.Lock()
	s.damaged, s.damagedParts, s.damagedAt = err.Error(), contract.FaultsOf(err), time.Now()
	s.mu.Unlock()
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err := v.machine().Stop(call); err != nil {
		s.log.Error("failed to pause the guest", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(shim.Event{Damaged: s.damaged, DamagedParts: s.damagedParts}, nil)
}

// verifyRate is how fast the memory of a lazily restored image is read in the
// background, in bytes a second: well below what a disk can do, since the guest
// is waiting for pages of the same file.
const verifyRate = 256 << 20

// verifyLazily checks the memory of a running VM's image.
func verifyLazily(ctx context.Context, img *memory.Image, log *slog.Logger) error {
	start := time.Now()
	err := img.Verify(ctx, func(done, _ uint64) {
		pace(ctx, start, done)
	})
	if err == nil {
		log.Info("image verified", "directory", img.Path(), "took", time.Since(start))
	}
	return err
}

// pace waits until so many bytes are due.
func pace(ctx context.Context, start time.Time, done uint64) {
	due := start.Add(time.Duration(float64(done) / verifyRate * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
