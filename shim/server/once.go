package server

import (
	"context"
	"log/slog"
	"os"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// once says whether no other guest may go on from the launch's image.
func (l *launch) once() bool {
	pod := l.s.o.Pod
	return l.image != nil && pod != nil && pod.Described.Restore != nil && pod.Described.Restore.Once
}

// checkOnce refuses an image that a guest has gone on from, before it costs anything, and a
// launch that would leave the mark out: by it the image's disks would be written to.
func (l *launch) checkOnce() error {
	if pod := l.s.o.Pod; pod != nil && pod.Described.Restore != nil && pod.Described.Restore.Once {
		dir := pod.Described.Restore.Directory
		if restore := l.vm.plan.Restore; restore == nil || restore.Directory != dir {
			return fault.New(shim.CodeInvalid, "restore", "this pod's VM goes on from the image in %s, and is not launched otherwise", dir)
		}
	}
	switch {
	case !l.once():
		return nil
	case l.vm.plan.Restore.Lazy:
		return fault.New(shim.CodeInvalid, "lazy", "an image that is removed once its guest runs can't be mapped: restore it eagerly")
	}
	return l.image.CheckUnused()
}

// markUsed is the last thing before the guest's first instruction: from here on the image
// is nobody's to go on from, whatever becomes of this guest. So nothing undoes the launch any more:
// the next agent finds the VM running, and who ends the VM does so in good order.
func (l *launch) markUsed(ctx context.Context) error {
	if !l.once() {
		return nil
	}
	if err := l.s.checkHeld(ctx, l.vm); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := l.op.seal(); err != nil {
		return err
	}
	by := "run " + l.s.o.RunID
	if host, err := os.Hostname(); err == nil { // in a pod its name
		by = host + ", " + by
	}
	return l.image.MarkUsed(by)
}

// removeUsed removes an image whose guest runs.
func removeUsed(log *slog.Logger, dir string) {
	if err := memory.Remove(dir); err != nil {
		log.Warn("failed to remove the memory image that the guest has gone on from: the next save into its volume does", "directory", dir, "error", err)
		return
	}
	log.Info("removed the memory image that the guest has gone on from", "directory", dir)
}

// LaunchError is why the last launch failed; nil: it did not, or there was none.
func (s *Server) LaunchError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launchErr
}
