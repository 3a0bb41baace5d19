package e2e

import (
	"context"
	"sync"
)

// journal keeps what comes in, in order, for those who wait for something in it.
type journal[T any] struct {
	mu    sync.Mutex
	items []T
	more  chan struct{} // closed and replaced when something comes
}

func newJournal[T any]() *journal[T] { return &journal[T]{more: make(chan struct{})} }

func (j *journal[T]) add(items ...T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.items = append(j.items, items...)
	close(j.more)
	j.more = make(chan struct{})
}

// all is what has come so far.
func (j *journal[T]) all() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.items[:len(j.items):len(j.items)]
}

// next waits for the first item from a place on that matches, and returns the
// place after it.
func (j *journal[T]) next(ctx context.Context, from int, matches func(T) bool) (after int, err error) {
	for {
		j.mu.Lock()
		items, more := j.items, j.more
		j.mu.Unlock()
		for ; from < len(items); from++ {
			if matches(items[from]) {
				return from + 1, nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return from, context.Cause(ctx)
		}
	}
}
