package qmp

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestReplyBeatsTheEnd: a reply that has come is the call's, even if the
// connection or the context ended before the caller looked. Either may be chosen
// when both are there, hence the rounds.
func TestReplyBeatsTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &Client{done: make(chan struct{}), err: ErrDisconnected}
	close(c.done)
	for range 100 {
		replies := make(chan message, 1)
		replies <- message{Return: []byte("1")}
		if m, err := c.await(ctx, replies); err != nil || string(m.Return) != "1" {
			t.Fatalf("got %s, %v", m.Return, err)
		}
	}
}

// TestGivenUpCallsAreForgotten: calls that never get a reply take no memory.
func TestGivenUpCallsAreForgotten(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	c := &Client{conn: near, writing: make(chan struct{}, 1), pending: make(map[string]chan<- message), done: make(chan struct{})}
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			far.Read(make([]byte, 1000))
			cancel()
		}()
		if err := c.Execute(ctx, "hold", nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := c.Execute(t.Context(), "bad", 1, nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("got %v", err)
		}
	}
	if len(c.pending) > 0 {
		t.Errorf("%d calls are kept", len(c.pending))
	}
}

// TestWakeIsHandedOn: with more than one event queued and one wake, whoever takes
// an event, or leaves without one, wakes the next.
func TestWakeIsHandedOn(t *testing.T) {
	c := &Client{eventBytes: DefaultEventBytes, done: make(chan struct{}), pending: make(map[string]chan<- message)}
	s := c.SubscribeWithCapacity(3)
	for _, name := range []string{"A", "B", "C"} {
		s.put(Event{Name: name})
	}
	woken := func() bool {
		select {
		case <-s.wake:
			return true
		default:
			return false
		}
	}
	if !woken() || woken() {
		t.Fatal("want one wake for all events")
	}
	if _, err := s.Next(t.Context()); err != nil || !woken() {
		t.Errorf("after one took an event: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) || !woken() {
		t.Errorf("after one left: %v", err)
	}
}

// TestRefusalIsCut: however much QEMU says of a refusal, a few lines of it are kept.
func TestRefusalIsCut(t *testing.T) {
	m := message{Error: &wireError{Class: GenericError, Desc: strings.Repeat("nö", 1<<20)}}
	err := m.result("stop", nil)
	if text := err.Error(); len(text) > maxDesc+100 || !utf8.ValidString(text) || !strings.HasSuffix(text, "...") {
		t.Errorf("%d bytes: %.40q", len(text), text)
	}
}
