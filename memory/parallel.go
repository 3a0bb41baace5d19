package memory

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Progress gets how many bytes are done of how many. Calls come from other
// goroutines but never two at once, done never falls, and the last call of a
// success has done equal to total. It should return soon: workers wait for it.
type Progress func(done, total uint64)

// defaultWorkers are enough to keep a disk busy: one more than can compute, for
// the one that waits. More than four gain nothing.
func defaultWorkers() int { return min(runtime.NumCPU()+1, 4) }

// tracker calls a Progress as it promises.
type tracker struct {
	mu          sync.Mutex
	report      Progress
	done, total uint64
}

func newTracker(report Progress, total uint64) *tracker {
	t := &tracker{report: report, total: total}
	t.add(0)
	return t
}

func (t *tracker) add(n uint64) {
	if t.report == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	t.report(t.done, t.total)
}

// forEach calls do for each item, from several workers that have a buffer of
// size bytes each, until one returns an error or ctx is done.
func forEach[T any](ctx context.Context, workers, size int, items []T, do func(T, []byte) error) error {
	if len(items) == 0 {
		return context.Cause(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan T)
	group.Go(func() error {
		defer close(queue)
		for _, item := range items {
			if ctx.Err() != nil { // select would choose at random
				return context.Cause(ctx)
			}
			select {
			case queue <- item:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range min(workers, len(items)) {
		group.Go(func() error {
			buf, err := newBuffer(size)
			if err != nil {
				return err
			}
			defer freeBuffer(buf)
			for item := range queue {
				if err := do(item, buf); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
