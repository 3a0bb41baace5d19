package qmp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// flush waits until the client has read all that the server sent before.
func flush(t testing.TB, client *qmp.Client) {
	t.Helper()
	if err := client.Execute(testContext(t), "query-commands", nil, nil); err != nil {
		t.Fatal(err)
	}
}

func TestEvents(t *testing.T) {
	server, client := startServer(t)
	all, some := client.Subscribe(), client.Subscribe("RESUME", "FROM_THE_FUTURE")
	at := time.Unix(1700000000, 123456000)
	for _, name := range []string{"STOP", "FROM_THE_FUTURE", "RESUME"} {
		server.EmitAt(at, name, map[string]string{"of": name})
	}
	server.Emit("POWERDOWN", nil)
	flush(t, client)
	late := client.Subscribe()
	for _, want := range []string{"STOP", "FROM_THE_FUTURE", "RESUME"} {
		event := next(t, all)
		if event.Name != want || string(event.Data) != fmt.Sprintf(`{"of":%q}`, want) || !event.Timestamp.Equal(at) {
			t.Errorf("got %+v, want %s at %v", event, want, at)
		}
	}
	if event := next(t, all); event.Name != "POWERDOWN" || event.Data != nil {
		t.Errorf("got %+v", event)
	}
	for _, want := range []string{"FROM_THE_FUTURE", "RESUME"} {
		if event := next(t, some); event.Name != want {
			t.Errorf("filtered: got %s, want %s", event.Name, want)
		}
	}
	server.Emit("LATE", nil)
	if event := next(t, late); event.Name != "LATE" {
		t.Errorf("got %s, from before the subscription", event.Name)
	}
}

func TestEventTimestamps(t *testing.T) {
	tests := map[string]struct {
		timestamp string
		want      time.Time
	}{
		"known":         {`{"seconds": 1, "microseconds": 999999}`, time.Unix(1, 999999000)},
		"unknown":       {`{"seconds": -1, "microseconds": -1}`, time.Time{}},
		"missing":       {`null`, time.Time{}},
		"out of bounds": {`{"seconds": 1, "microseconds": 9223372036854775807}`, time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, client := startPeer(t)
			sub := client.Subscribe()
			p.send(`{"event": "X", "timestamp": ` + test.timestamp + "}\n")
			if event := next(t, sub); !event.Timestamp.Equal(test.want) {
				t.Errorf("got %v, want %v", event.Timestamp, test.want)
			}
		})
	}
}

// TestSlowSubscriber: the slow one keeps the newest events and is told how many it
// lost, and the others have them all.
func TestSlowSubscriber(t *testing.T) {
	const capacity, events = 4, 100
	server, client := startServer(t, qmp.WithEventCapacity(capacity))
	slow, quick := client.Subscribe(), client.SubscribeWithCapacity(0)
	for n := range events {
		server.Emit(fmt.Sprint("E", n), nil)
		if event := next(t, quick); event.Name != fmt.Sprint("E", n) {
			t.Fatalf("the quick one got %s, want E%d", event.Name, n)
		}
	}
	flush(t, client)
	var missed *qmp.MissedError
	if _, err := slow.Next(testContext(t)); !errors.As(err, &missed) || missed.Dropped != events-capacity {
		t.Fatalf("the slow one got %v, want to hear of %d dropped", err, events-capacity)
	}
	for n := events - capacity; n < events; n++ {
		if event := next(t, slow); event.Name != fmt.Sprint("E", n) {
			t.Errorf("the slow one got %s, want E%d", event.Name, n)
		}
	}
	server.Emit("LAST", nil)
	if event := next(t, slow); event.Name != "LAST" {
		t.Errorf("got %s", event.Name)
	}
}

// TestEventBytes: few events can be large too.
func TestEventBytes(t *testing.T) {
	server, client := startServer(t)
	sub := client.Subscribe()
	const size = 300 << 10
	for n := range 10 {
		server.Emit(fmt.Sprint("E", n), strings.Repeat("x", size))
	}
	flush(t, client)
	var missed *qmp.MissedError
	if _, err := sub.Next(testContext(t)); !errors.As(err, &missed) || missed.Dropped != 7 {
		t.Fatalf("got %v, want to hear of 7 dropped", err)
	}
	for n := 7; n < 10; n++ {
		if event := next(t, sub); event.Name != fmt.Sprint("E", n) {
			t.Errorf("got %s, want E%d", event.Name, n)
		}
	}
	server.Emit("LARGE", strings.Repeat("x", 2<<20))
	if event := next(t, sub); event.Name != "LARGE" || len(event.Data) != 2<<20+2 {
		t.Errorf("got %s with %d bytes", event.Name, len(event.Data))
	}
}

func TestSubscriptionClose(t *testing.T) {
	server, client := startServer(t)
	closed, other := client.Subscribe(), client.Subscribe()
	result := make(chan error)
	go func() { _, err := closed.Next(testContext(t)); result <- err }()
	closed.Close()
	closed.Close()
	if err := <-result; !errors.Is(err, qmp.ErrSubscriptionClosed) {
		t.Errorf("got %v", err)
	}
	server.Emit("STOP", nil)
	if event := next(t, other); event.Name != "STOP" {
		t.Errorf("got %s", event.Name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := other.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestSharedSubscription: each event goes to one of those that wait.
func TestSharedSubscription(t *testing.T) {
	server, client := startServer(t)
	const readers, events = 4, 100
	sub := client.Subscribe()
	var mu sync.Mutex
	seen := make(map[string]int)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for {
				event, err := sub.Next(testContext(t))
				if err != nil {
					if !errors.Is(err, qmp.ErrDisconnected) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				seen[event.Name]++
				mu.Unlock()
			}
		})
	}
	for n := range events {
		server.Emit(fmt.Sprint("E", n), nil)
	}
	server.Drop()
	wg.Wait()
	for n := range events {
		if got := seen[fmt.Sprint("E", n)]; got != 1 {
			t.Errorf("event %d was seen %d times", n, got)
		}
	}
}

// TestFlood: an endless stream of events to subscribers that don't read stops
// neither calls nor other subscribers, and what is held is bounded.
func TestFlood(t *testing.T) {
	server, client := startServer(t)
	for range 10 {
		client.Subscribe()
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				server.Emit("FLOOD", n)
			}
		}
	})
	for range 20 {
		flush(t, client)
	}
	close(stop)
	wg.Wait()
}
