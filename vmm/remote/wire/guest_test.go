package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/test/suites"
)

// TestGuestPeer: what a driver in a pod says is bounded, and waits for room that all have in common.
func TestGuestPeer(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame string
		lost  bool
	}{
		{"an answer as large as may be", fmt.Sprintf(`{"id":1,"body":%q}`, strings.Repeat("a", maxGuestMessage-64)), false},
		{"one that is larger", fmt.Sprintf(`{"id":1,"body":%q}`, strings.Repeat("a", maxGuestMessage)), true},
		{"a large call", fmt.Sprintf(`{"id":7,"method":"Dial","body":%q}`, strings.Repeat("a", maxGuestCall)), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			room := semaphore.NewWeighted(decodeFactor * maxGuestMessage)
			p, other := guestEnds(t, room)
			go func() {
				_, _ = other.Read(make([]byte, 1)) // the call is made
				_, _ = other.Write(frame(c.frame)) // it may be cut off
			}()
			ctx, cancel := suites.Wait(t.Context(), t, awaits)
			defer cancel()
			var text string
			_, err := p.Call(ctx, "Describe", nil, &text)
			if lost := p.Err() != nil; lost != c.lost {
				t.Errorf("lost %v, want %v: %v", lost, c.lost, err)
			}
			if !room.TryAcquire(decodeFactor * maxGuestMessage) {
				t.Error("the room is not given back")
			}
		})
	}
}

// TestGuestPeerWaitsForRoom: a message is read only when others have been.
func TestGuestPeerWaitsForRoom(t *testing.T) {
	room := semaphore.NewWeighted(decodeFactor * maxGuestMessage)
	if err := room.Acquire(t.Context(), decodeFactor*maxGuestMessage); err != nil {
		t.Fatal(err)
	}
	p, other := guestEnds(t, room)
	answered := make(chan error, 1)
	go func() {
		_, err := p.Call(context.Background(), "Describe", nil, nil)
		answered <- err
	}()
	if _, err := other.Read(make([]byte, 1)); err != nil { // the call is made
		t.Fatal(err)
	}
	if _, err := other.Write(frame(fmt.Sprintf(`{"id":1,"body":%q}`, strings.Repeat("a", 2*freeMessage)))); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-answered:
		t.Errorf("read without room: %v", err)
	default:
	}
	room.Release(decodeFactor * maxGuestMessage)
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-suites.After(t, awaits):
		t.Error("it is not read when there is room")
	}
}

func guestEnds(t *testing.T, room *semaphore.Weighted) (*Peer, *os.File) {
	t.Helper()
	a, f, err := unixsocket.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	p := NewGuestPeer(a.(*net.UnixConn), nil, room)
	t.Cleanup(func() { p.Close(); f.Close() })
	return p, f
}
