package server

import (
	"context"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// startCompanions starts what the VMM needs beside it. of is the VMM's opener, which has the other
// ends of their pairs of sockets.
func (l *launch) startCompanions(ctx context.Context, of *opener) error {
	l.meanwhile.Push(of.pairs.close)
	for i := range l.vm.plan.Companions {
		if err := l.startCompanion(ctx, &l.vm.plan.Companions[i], of); err != nil {
			return err
		}
	}
	return nil
}

func (l *launch) startCompanion(ctx context.Context, what *plan.Companion, of *opener) error {
	l.progress(shim.Progress{Step: "starting " + what.Name})
	log, err := l.openLog()
	if err != nil {
		return err
	}
	o := &opener{
		plan: &plan.Plan{User: l.vm.plan.User, Files: what.Files}, run: of.run, stateDir: of.stateDir, lock: of.lock,
		sockets: of.sockets, volumes: of.volumes, received: of.received, pairs: of.pairs, undo: &l.vm.undo,
	}
	defer o.release()
	if err := o.all(ctx); err != nil {
		return err
	}
	c, err := startCompanion(ctx, what, o, log)
	if err != nil {
		return fault.Of(err)
	}
	l.vm.companions = append(l.vm.companions, c)
	l.log.Info("a process beside the VMM is ready", "name", what.Name, "pid", c.proc.pid)
	return nil
}

// watchCompanions ends the launch when one of them ends.
func (l *launch) watchCompanions(ctx context.Context, cancel context.CancelCauseFunc) {
	for _, c := range l.vm.companions {
		go func() {
			select {
			case <-c.proc.done:
				cancel(c.failure())
			case <-ctx.Done():
			}
		}()
	}
}
