package qmp

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// DefaultEventCapacity is how many events a subscription holds for a subscriber
// that is behind. A VM's whole life makes a few dozen.
const DefaultEventCapacity = 256

// DefaultEventBytes bounds the data that a subscription holds, unless WithEventBytes says
// otherwise. Events have some hundred bytes; only a hostile peer sends more. One event
// alone may be larger, up to the bound on messages.
const DefaultEventBytes = 1 << 20

// largeEvents is how many of the largest events are in a subscription's bytes, where the
// peer isn't trusted: a larger one is dropped.
const largeEvents = 4

// Event is what QEMU tells by itself.
type Event struct {
	Name string // such as "STOP"
	// Data is the event's own, nil if it has none. It is shared by all
	// subscribers: don't change it.
	Data json.RawMessage
	// Timestamp is by the clock of QEMU's host, in microseconds. It is zero if
	// QEMU could not tell the time.
	Timestamp time.Time
}

// Subscription is a queue of events, see the package's documentation. Its methods
// may be called from any goroutine; each event goes to one call of Next.
type Subscription struct {
	client   *Client
	filter   []string
	capacity int
	wake     chan struct{} // has room for one: something to read
	closed   chan struct{}

	mu      sync.Mutex
	queue   []Event
	bytes   int // of the data in queue
	dropped uint64
	ended   bool // Close was called
}

// Subscribe returns the events of these names from now on, or all if none are
// named. Close it when it isn't needed any more.
func (c *Client) Subscribe(filter ...string) *Subscription {
	return c.SubscribeWithCapacity(c.eventCapacity, filter...)
}

// SubscribeWithCapacity is Subscribe with a queue of that many events, at least one.
func (c *Client) SubscribeWithCapacity(capacity int, filter ...string) *Subscription {
	s := &Subscription{
		client:   c,
		filter:   slices.Clone(filter),
		capacity: max(capacity, 1),
		wake:     make(chan struct{}, 1),
		closed:   make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.subs = append(c.subs, s)
	}
	return s
}

// Next returns the next event, and waits for it until ctx ends.
//
// The error is a [*MissedError] if events were dropped before that one (then call
// Next again), the context's error, [ErrSubscriptionClosed] after Close, and the
// client's [ErrDisconnected] when the connection has ended and all events that came
// before were read.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			s.passOn()
			return Event{}, err
		}
		// Asked for before the queue is: nothing is put there once it has ended.
		end := s.client.Err()
		event, ok, err := s.take()
		switch {
		case err != nil:
			return Event{}, err
		case ok:
			return event, nil
		case end != nil:
			return Event{}, end
		}
		select {
		case <-s.wake:
		case <-s.closed:
		case <-s.client.done:
		case <-ctx.Done():
		}
	}
}

// Close ends the subscription. Waiting calls of Next return. Closing twice is fine.
func (s *Subscription) Close() {
	s.client.unsubscribe(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		s.queue = nil
		close(s.closed)
	}
}

func (s *Subscription) take() (event Event, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return Event{}, false, ErrSubscriptionClosed
	case s.dropped > 0:
		err = &MissedError{Dropped: s.dropped}
		s.dropped = 0
	case len(s.queue) > 0:
		event, ok = s.pop(), true
	}
	if len(s.queue) > 0 {
		s.signal() // two puts may have woken one goroutine only
	}
	return event, ok, err
}

// passOn wakes another goroutine, if there is something to read, in place of one
// that was woken and leaves without it.
func (s *Subscription) passOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		s.signal()
	}
}

func (s *Subscription) put(event Event) {
	if len(s.filter) > 0 && !slices.Contains(s.filter, event.Name) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.client.room != nil && event.size() > s.client.eventBytes/largeEvents {
		s.dropped++
		s.signal()
		return
	}
	for len(s.queue) > 0 && (len(s.queue) >= s.capacity || s.bytes+event.size() > s.client.eventBytes) {
		s.pop()
		s.dropped++
	}
	s.queue = append(s.queue, event)
	s.bytes += event.size()
	s.signal()
}

// pop takes the oldest event out. The array goes with its last event, so that a
// queue that was long once costs nothing later.
func (s *Subscription) pop() Event {
	event := s.queue[0]
	s.queue[0] = Event{}
	s.queue = s.queue[1:]
	s.bytes -= event.size()
	if len(s.queue) == 0 {
		s.queue = nil
	}
	return event
}

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (e Event) size() int { return len(e.Name) + len(e.Data) }

// publish is called by the reader only, so that events stay in order.
func (c *Client) publish(event Event) {
	c.mu.Lock()
	subs := c.subs
	c.mu.Unlock()
	for _, s := range subs {
		s.put(event)
	}
}

// unsubscribe makes a new list: the reader may be going through the old one.
func (c *Client) unsubscribe(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.subs, s); i >= 0 {
		c.subs = slices.Concat(c.subs[:i], c.subs[i+1:])
	}
}
