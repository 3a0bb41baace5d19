package server

import (
	"errors"
	"sync"
)

// undoStack has what takes back, in reverse order, what was made.
type undoStack struct {
	mu    sync.Mutex
	steps []func() error
}

func (u *undoStack) push(step func() error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, step)
}

// run takes everything back, once, and returns what could not be.
func (u *undoStack) run() error {
	u.mu.Lock()
	steps := u.steps
	u.steps = nil
	u.mu.Unlock()
	var errs []error
	for i := len(steps) - 1; i >= 0; i-- {
		errs = append(errs, steps[i]())
	}
	return errors.Join(errs...)
}
