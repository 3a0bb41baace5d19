package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// maxRelayed is how many bytes of output wait for anyone who reads it.
const maxRelayed = 1 << 20

// relay is a writer that never waits and never fails. A container's output goes to
// its runtime, which doesn't take any while it is restarted: the guest, which
// waits for its console, must not wait because of that.
type relay struct {
	to   io.Writer
	done chan struct{}

	mu      sync.Mutex
	more    sync.Cond
	waiting []byte
	dropped int
	ended   bool
}

func newRelay(to io.Writer) *relay {
	r := &relay{to: to, done: make(chan struct{})}
	r.more.L = &r.mu
	go r.run()
	return r
}

func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting)+len(b) > maxRelayed {
		r.dropped += len(b)
	} else {
		r.waiting = append(r.waiting, b...)
	}
	r.more.Signal()
	return len(b), nil
}

func (r *relay) run() {
	defer close(r.done)
	for {
		b, dropped := r.take()
		if b == nil {
			return
		}
		_, _ = r.to.Write(b) // what can't be written is lost
		if dropped > 0 {
			_, _ = fmt.Fprintf(r.to, "\n[vmlet-shim: %d bytes were dropped here: the reader was too slow]\n", dropped)
		}
	}
}

// take waits for what is to be written, and returns nil at the end.
func (r *relay) take() (b []byte, dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) == 0 && !r.ended {
		r.more.Wait()
	}
	b, dropped = r.waiting, r.dropped
	r.waiting, r.dropped = nil, 0
	return b, dropped
}

// end waits until all is written, for some time at most.
func (r *relay) end(patience time.Duration) {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.more.Signal()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
}
