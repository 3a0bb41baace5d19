// Package undo keeps what must be taken back when a sequence of steps fails in
// the middle.
package undo

import (
	"context"
	"errors"
	"fmt"
)

// Stack collects undo steps. The zero Stack is empty and ready. It is for one
// goroutine.
type Stack struct {
	steps []step
}

type step struct {
	name string
	do   func(context.Context) error
}

// Push adds the way back from a step that has just succeeded. The name is for
// errors: "remove cgroup".
func (s *Stack) Push(name string, do func(context.Context) error) {
	s.steps = append(s.steps, step{name, do})
}

// Run takes everything back, the last step first, and goes on after errors,
// which it returns joined. The stack is empty afterwards. ctx's end does not
// stop it: half an undo helps nobody.
func (s *Stack) Run(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for len(s.steps) > 0 {
		last := s.steps[len(s.steps)-1]
		s.steps = s.steps[:len(s.steps)-1]
		if err := last.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}

// Forget drops all steps: the sequence has succeeded.
func (s *Stack) Forget() { s.steps = nil }
