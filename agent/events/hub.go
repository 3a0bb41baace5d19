// Package events hands the agent's events to those who watch, and keeps the
// last of them.
package events

import (
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"maps"
	"slices"
	"sync"
)

// Hub keeps a bounded history in memory and any number of subscribers. None
// can hold up the publisher or another. It may be used concurrently. An
// event that was published is not to be changed.
type Hub struct {
	mu      sync.Mutex
	history []*nodev1.Event // oldest first
	of      map[string]int  // how many of them are of a VM
	limit   int
	subs    map[*Subscription]struct{}
}

// NewHub makes a Hub that keeps limit events: the last ones, but where one VM has more of
// them than any other, its oldest make room. A guest that panics all the time pushes out
// what is known of itself alone.
func NewHub(limit int) *Hub {
	return &Hub{limit: limit, of: make(map[string]int), subs: make(map[*Subscription]struct{})}
}

// Publish gives an event to the history and to every subscriber that wants it.
func (h *Hub) Publish(e *nodev1.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(e)
	for s := range h.subs {
		s.offer(e)
	}
}

// keep takes an event into the history; mu is held.
func (h *Hub) keep(e *nodev1.Event) {
	h.history = append(h.history, e)
	h.of[e.GetVm()]++
	if len(h.history) <= h.limit {
		return
	}
	most := slices.Max(slices.Collect(maps.Values(h.of)))
	oldest := slices.IndexFunc(h.history, func(e *nodev1.Event) bool { return h.of[e.GetVm()] == most })
	busiest := h.history[oldest].GetVm()
	h.history = slices.Delete(h.history, oldest, oldest+1)
	if h.of[busiest]--; h.of[busiest] == 0 {
		delete(h.of, busiest)
	}
}

// Subscribe starts a subscription to the events of one VM, or of all with an
// empty name, with the last tail events of the past before it. buffer is how
// many events may wait for the subscriber before some are dropped.
func (h *Hub) Subscribe(vm string, tail, buffer int) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Subscription{hub: h, vm: vm, limit: buffer, wake: make(chan struct{}, 1)}
	s.waiting = make([]Item, 0, 8)
	for _, e := range h.last(vm, tail) {
		s.waiting = append(s.waiting, Item{Event: e})
	}
	s.limit += len(s.waiting)
	h.subs[s] = struct{}{}
	s.signal()
	return s
}

// last returns the last events of a VM, oldest first.
func (h *Hub) last(vm string, tail int) []*nodev1.Event {
	var found []*nodev1.Event
	for _, e := range h.history {
		if vm == "" || e.GetVm() == vm {
			found = append(found, e)
		}
	}
	return found[max(0, len(found)-max(tail, 0)):]
}

// Item is one event, and how many were dropped before it.
type Item struct {
	Event   *nodev1.Event
	Dropped uint64
}

// Subscription is one watcher's. Take and Ready are for one goroutine.
type Subscription struct {
	hub     *Hub
	vm      string
	limit   int
	waiting []Item // guarded by hub.mu
	dropped uint64 // since the last that was kept
	wake    chan struct{}
}

// offer keeps an event or counts it as dropped. The newest is what is dropped:
// a watcher then knows where the gap is.
func (s *Subscription) offer(e *nodev1.Event) {
	if s.vm != "" && e.GetVm() != s.vm {
		return
	}
	if len(s.waiting) >= s.limit {
		s.dropped++
		return
	}
	s.waiting = append(s.waiting, Item{Event: e, Dropped: s.dropped})
	s.dropped = 0
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ready has a value when Take may have something.
func (s *Subscription) Ready() <-chan struct{} { return s.wake }

// Take returns what has come since the last Take, in order.
func (s *Subscription) Take() []Item {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	taken := s.waiting
	s.waiting = nil
	return taken
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
}
