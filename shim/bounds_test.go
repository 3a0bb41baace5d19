package shim

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// testRoom, in bytes, is what one message of the largest size takes.
const testRoom = decodeFactor * MaxPodMessage

// liar plays the shim of a pod: it welcomes, and then calls reply for each request.
func liar(t *testing.T, room *semaphore.Weighted, welcome string, reply func(w *Wire, r Request)) (*Client, error) {
	t.Helper()
	ours, theirs := pair(t)
	w := NewWire(theirs)
	go func() {
		defer w.Close()
		for {
			var r Request
			if _, err := w.Receive(&r); err != nil {
				return
			}
			if r.Op == OpHello {
				w.Send(Message{ID: r.ID, Body: []byte(welcome)})
				continue
			}
			reply(w, r)
		}
	}()
	c, err := NewPodClient(t.Context(), ours, room)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

const podWelcome = `{"major":1,"minor":5,"pod":{"runDir":"/run/vmlet","runId":"1"}}`

// liveHeap is what is in use, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what was only pooled is dropped by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLiarsTakeLittleMemory: what is kept of pods' words is little, whatever they say as
// long as nobody listens.
func TestLiarsTakeLittleMemory(t *testing.T) {
	const (
		liars = 6
		each  = 256 << 10 // bytes, for as long as the connection lasts
	)
	long := strings.Repeat("x", MaxPodMessage-(1<<10))
	exit := &Exit{LastWords: long[:1<<18], ImageDirectory: long[:1<<17], RunID: long[:1<<16]}
	welcome := podWelcome[:len(podWelcome)-1] + `,"damaged":"` + long[:1<<17] + `","notes":[0` + strings.Repeat(",0", maxNotes-16) + `],"keep":"` + long[:MaxPodKeep-2] + `"}`
	room := semaphore.NewWeighted(testRoom)
	before := liveHeap()
	clients := make([]*Client, liars)
	var group errgroup.Group
	for i := range clients {
		c, err := liar(t, room, welcome, func(w *Wire, r Request) {
			for range eventQueue {
				for _, m := range []Message{
					{Event: &Event{Damaged: long}}, {Event: &Event{Exit: exit, Note: json.RawMessage(`"` + long[:1<<15] + `"`)}},
				} {
					if w.Send(m) != nil {
						return
					}
				}
			}
			w.Send(Message{ID: r.ID, Progress: &Progress{Step: long}})
			w.Send(Message{ID: 1 << 60, Body: json.RawMessage(`"` + long[2:] + `"`)})
			w.Send(Message{ID: r.ID, Body: []byte("{}")})
		})
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
		group.Go(func() error { return c.Release(t.Context(), nil) }) // all that comes before the reply is read
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	grown := (liveHeap() - before) / liars
	t.Logf("%d bytes for each", grown)
	if grown > each {
		t.Errorf("%d bytes are kept of each pod's words, want at most %d", grown, each)
	}
	runtime.KeepAlive(clients)
}

// TestPodMessagesAreBounded: what is larger than an honest shim's is not read.
func TestPodMessagesAreBounded(t *testing.T) {
	for name, welcome := range map[string]string{
		"a welcome without end":  `{"major":1,"minor":5,"plan":{"files":[{}` + strings.Repeat(",{}", MaxPodMessage/3) + `]}}`,
		"notes without end":      `{"major":1,"minor":5,"notes":[0` + strings.Repeat(",0", maxNotes+1) + `]}`,
		"too much that was kept": `{"major":1,"minor":5,"keep":"` + strings.Repeat("x", MaxPodKeep) + `"}`,
		"a folder without end":   `{"major":1,"minor":5,"pod":{"runDir":"/` + strings.Repeat("x", maxPath) + `"}}`,
	} {
		room := semaphore.NewWeighted(testRoom)
		if c, err := liar(t, room, welcome, nil); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v, %.100v", name, c, err)
		}
		if !room.TryAcquire(testRoom) {
			t.Errorf("%s: its room is still taken", name)
		}
	}
}

// TestPodsShareRoom: a message is read when there is room for it, an answer keeps its own
// until it is done with, and none keeps it that ended, or that nobody waited for.
func TestPodsShareRoom(t *testing.T) {
	room := semaphore.NewWeighted(testRoom)
	described := `{"vmms":"` + strings.Repeat("x", MaxPodMessage-(1<<10)) + `"}`
	describes := func(w *Wire, r Request) { w.Send(Message{ID: r.ID, Body: []byte(described)}) }
	first, err := liar(t, room, podWelcome, describes)
	if err != nil {
		t.Fatal(err)
	}
	d, err := first.Describe(t.Context(), Describe{})
	if err != nil {
		t.Fatal(err)
	}
	if room.TryAcquire(testRoom) {
		t.Fatal("an answer that is still in use takes no room")
	}
	sent := make(chan struct{})
	second, err := liar(t, room, podWelcome, func(w *Wire, r Request) {
		close(sent)
		describes(w, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := second.Describe(ctx, Describe{})
		answered <- err
	}()
	<-sent
	select {
	case err := <-answered:
		t.Fatalf("a second was read while there was no room: %v", err)
	default:
	}
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who leaves gets %v", err)
	}
	second.Close() // whose reader waits for room, or will
	d.Done()
	d.Done() // no more than once
	if !room.TryAcquire(testRoom) {
		t.Error("room is taken by answers that nobody uses")
	}
}

// TestStallingPodGivesBackItsRoom: who announces a message and does not send it loses the
// connection.
func TestStallingPodGivesBackItsRoom(t *testing.T) {
	t.Parallel() // it waits for messageTime
	room := semaphore.NewWeighted(testRoom)
	c, err := liar(t, room, podWelcome, func(w *Wire, r Request) {
		w.Conn().Write(binary.BigEndian.AppendUint32(nil, MaxPodMessage))
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*messageTime)
	defer cancel()
	if _, err := c.Describe(ctx, Describe{}); !errors.Is(err, ErrDisconnected) {
		t.Errorf("error %v", err)
	}
	acquired, over := context.WithTimeout(t.Context(), time.Minute)
	defer over()
	if room.Acquire(acquired, testRoom) != nil {
		t.Error("its room is still taken")
	}
}

// TestFieldsAreBounded: no field of what is kept has more than is shown of it.
func TestFieldsAreBounded(t *testing.T) {
	long := strings.Repeat("ü", MaxPodMessage/2)
	exit := func() *Exit {
		return &Exit{Reason: Reason(long), Signal: long, LastWords: long, ImageDirectory: long, ImageID: long, RunID: long}
	}
	decoded := func(into any, m Message) any {
		if m.Body == nil {
			b, err := json.Marshal(into)
			if err != nil {
				t.Fatal(err)
			}
			m.Body = b
		}
		if err := (&call{into: into}).decode(&m, true); err != nil && m.Error == nil {
			t.Errorf("%T: %v", into, err)
		}
		return into
	}
	event := &Event{Damaged: long, Exit: exit(), Note: json.RawMessage(`"` + long + `"`)}
	event.bound(true)
	refused := &Error{Code: Code(long), Field: long, Message: long}
	decoded(new(Exit), Message{Error: refused})
	for _, v := range []any{
		event, refused, decoded(exit(), Message{}), decoded(&Committed{Exit: exit()}, Message{}), decoded(&Prepared{ImageID: long}, Message{}),
		decoded(&Welcome{Damaged: long, Exit: exit(), Notes: []json.RawMessage{[]byte(`"` + long + `"`)}}, Message{}),
	} {
		b, err := json.Marshal(v)
		if most := 2*maxText + maxPath + 8*maxField; err != nil || len(b) > most {
			t.Errorf("%T: %d bytes are kept, want at most %d; %v", v, len(b), most, err)
		}
	}
}
