// Package undo keeps what takes back what was made.
package undo

import (
	"errors"
	"sync"
)

// Stack has what takes back, in reverse order, what was made.
type Stack struct {
	mu    sync.Mutex
	steps []func() error
}

func (u *Stack) Push(step func() error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, step)
}

// Run takes everything back, once, and returns what could not be.
func (u *Stack) Run() error {
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
