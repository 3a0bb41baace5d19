package vm

import (
	"context"
	"time"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/vmm"
)

const (
	// retryFirst and retryLast are how long a guest that a disk's error has stopped waits
	// until the disk is tried again, at first and at most: storage may work again soon, or
	// when somebody has made room.
	retryFirst = 5 * time.Second
	retryLast  = 2 * time.Minute
	// retrySettle is how long the disk is given to fail again. Until then nothing is reported of
	// the guest: a retry in vain is no news.
	retrySettle = time.Second
)

// planRetry has the disk tried in a while if the guest waits for it.
func (w *watcher) planRetry() {
	switch {
	case !stoppedByDisk(w.m):
		w.retry = retry{tried: w.retry.tried}
	case w.retry.due == nil && w.retry.tried == nil:
		if w.retry.waits == nil {
			w.retry.waits = newBackoff(retryFirst, retryLast)
		}
		w.retry.due = time.After(w.retry.waits.Step())
	}
}

// retryDue lets the guest go on, beside the watch: another operation may have the VM.
func (w *watcher) retryDue() {
	tried := make(chan struct{})
	w.retry.due, w.retry.tried = nil, tried
	w.tasks.Go(func() {
		defer close(tried)
		if err := retryDisk(w.tasks.ctx, w.m); err != nil {
			w.m.log.Debug("the guest does not go on after a disk's error", "error", err)
		}
	})
}

// retried gives the disk a moment; what the VMM says meanwhile is looked at afterwards.
func (w *watcher) retried() {
	w.retry.tried = nil
	w.held = time.After(retrySettle)
	w.planRetry()
}

// retryDisk is a resume that leaves the state to what the VMM says of it.
func retryDisk(ctx context.Context, m *VM) error {
	ctx, cancel := context.WithTimeout(ctx, monitorPatience)
	defer cancel()
	_, err := operate(ctx, m, lifecycle.Resume, func(ctx context.Context, m *VM, monitor vmm.Monitor) error {
		if l := m.running(); l != nil {
			if err := l.checkWhole(m.name); err != nil {
				return err
			}
		}
		if !stoppedByDisk(m) {
			return nil // somebody was faster
		}
		return goOn(ctx, m, monitor)
	})
	return err
}
