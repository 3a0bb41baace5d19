package events

import "sync"

// Followers are those who are woken when any VM's record has changed. They look for
// themselves at what is new, so that nothing has to be kept for slow ones. The zero value is
// ready for use; it may be used concurrently.
type Followers struct {
	mu    sync.Mutex
	wakes map[chan struct{}]struct{}
}

// Follow returns a channel that has a value when something may have changed since it was last
// received from, and at first. stop ends that.
func (f *Followers) Follow() (changed <-chan struct{}, stop func()) {
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wakes == nil {
		f.wakes = make(map[chan struct{}]struct{})
	}
	f.wakes[wake] = struct{}{}
	return wake, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.wakes, wake)
	}
}

// Any says whether anybody follows.
func (f *Followers) Any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.wakes) > 0
}

// Wake wakes them all, and waits for none.
func (f *Followers) Wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for wake := range f.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}
