package claimwatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// load reads the record that an earlier controller has left.
func (w *Watch) load(ctx context.Context) bool {
	text, version, err := w.o.API.Read(ctx)
	if err != nil {
		w.o.Log.Warn("failed to read the record of watched claims", "error", err)
		return false
	}
	r, err := decode(text)
	if err != nil {
		// Without a record it is not known who used the claims.
		w.o.Log.Error("the record of watched claims is damaged, and begun again", "error", err)
	}
	w.writing.Lock()
	w.version = version
	w.writing.Unlock()
	w.change(func() { w.record, w.loaded = r, true })
	return true
}

// errOther: another controller has become the leader, or was it longer than this one knew. What it has
// written is not known here.
var errOther = errors.New("another controller has written the record of watched claims")

// keep writes the record from time to time, until ctx ends. It ends the watch if it is another's.
func (w *Watch) keep(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.tidy()
		switch err := w.write(ctx); {
		case errors.Is(err, errOther):
			end(err)
		case err != nil && ctx.Err() == nil:
			w.o.Log.Warn("failed to write the record of watched claims", "error", err)
		}
	}
}

// tidy forgets what is no longer needed.
func (w *Watch) tidy() {
	old := w.o.Now().Add(-tidyAge)
	w.drop(func(u *Use) bool { return u.Since.Before(old) && !w.o.Needed(*u) })
}

// drop forgets uses. Those that w.record has are never changed in place but by the watch itself, so
// that others' copies of the list stay as they are.
func (w *Watch) drop(which func(*Use) bool) {
	w.change(func() {
		var left []*Use
		for _, u := range w.record.Uses {
			if !which(u) {
				left = append(left, u)
			}
		}
		w.dirty = w.dirty || len(left) != len(w.record.Uses)
		w.record.Uses = left
	})
}

// write writes the record, if it has changed. The error is errOther if it is not this process's.
func (w *Watch) write(ctx context.Context) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	if !w.loaded || !w.dirty {
		w.mu.Unlock()
		return nil
	}
	w.record.Writer = w.id
	text, err := w.record.encode()
	w.dirty = false
	w.mu.Unlock()
	if err == nil {
		err = w.replace(ctx, text)
	}
	if err != nil {
		w.change(func() { w.dirty = true })
	}
	return err
}

// replace writes the record over the version that is known, or over one that this process wrote
// without learning of it, as the answer was lost. writing is held.
func (w *Watch) replace(ctx context.Context, text string) error {
	next, err := w.o.API.Write(ctx, text, w.version)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		there, version, failed := w.o.API.Read(ctx)
		if failed != nil {
			return errors.Join(err, failed)
		}
		if r, failed := decode(there); failed != nil || r.Writer != w.id {
			return fmt.Errorf("%w: %w", errOther, err)
		}
		next, err = w.o.API.Write(ctx, text, version)
	}
	if err == nil {
		w.version = next
	}
	return err
}
