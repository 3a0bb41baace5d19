package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/vmlet/vmlet/contract"
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
			return fault.New(shim.CodeInvalid, "restore", "this pod's VM goes on from the image in %s, and is not launched otherwise", contract.ObjectName(dir))
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

// cleanUp takes back what a launch needed for itself, and of a guest that runs lets its image go. A disk that does not answer
// keeps no guest from its agent that has gone on from there: what is left is released when the disk answers.
func (l *launch) cleanUp(runs bool) error {
	if !runs || !l.once() && !l.s.source.imageAttached() {
		return l.meanwhile.Run()
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(l.meanwhile.Run(), l.letImageGo()) }()
	timer := time.NewTimer(l.s.o.ClearWithin)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return contract.Errorf("%s: the disk has not answered for %v: the image that the guest was restored from is released when it does", contract.ObjectName(l.image.Path()), l.s.o.ClearWithin)
	}
}

// letImageGo has nothing left of the image of a guest that runs now. Anyone who has attached its volume takes
// that away as soon as the agent knows that the guest runs: until then no descriptor of it is to be left.
// The claim goes with the image, so that it is not removed before.
func (l *launch) letImageGo() error {
	if !l.s.source.imageAttached() {
		go removeUsed(l.log, l.image.Path())
		return nil
	}
	if err := l.s.source.take().Close(); err != nil {
		return fmt.Errorf("close the volume with the image: %w", err)
	}
	return nil
}
