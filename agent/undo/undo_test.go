package undo

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestStack(t *testing.T) {
	var s Stack
	var done []string
	broken := errors.New("broken")
	push := func(name string, err error) {
		s.Push(name, func(ctx context.Context) error {
			done = append(done, name)
			return errors.Join(err, ctx.Err())
		})
	}
	push("first", nil)
	push("second", broken)
	push("third", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Run(ctx)
	if !errors.Is(err, broken) || errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the one of the second step alone", err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(done, want) {
		t.Errorf("order %q, want %q", done, want)
	}
	if err := s.Run(t.Context()); err != nil || len(done) != 3 {
		t.Errorf("a second run did something: %v, %q", err, done)
	}
	push("fourth", nil)
	s.Forget()
	if err := s.Run(t.Context()); err != nil || len(done) != 3 {
		t.Errorf("forgotten steps were taken: %v, %q", err, done)
	}
}
