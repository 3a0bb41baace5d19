package qmp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// Of a peer that isn't trusted, in bytes: how long its messages may be, and what they take.
const (
	most     = 256 << 10
	testRoom = 4 * most
)

// TestRoom: a long message is read when there is room for it, and keeps its own until its
// call has it.
func TestRoom(t *testing.T) {
	room := semaphore.NewWeighted(testRoom)
	p, client := startPeer(t, qmp.WithMaxMessageSize(most), qmp.WithRoom(room, 1<<10))
	room.TryAcquire(testRoom) // by another client
	answered := make(chan error, 1)
	go func() { answered <- client.Execute(testContext(t), "query-long", nil, nil) }()
	r := p.receive()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		p.reply(r, `"`+strings.Repeat("x", most/2)+`"`)
	}()
	select {
	case <-sent:
		t.Error("it was read while there was no room")
	case err := <-answered:
		t.Errorf("it was answered while there was no room: %v", err)
	default:
		runtime.Gosched()
	}
	room.Release(testRoom)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-sent
	if !room.TryAcquire(testRoom) {
		t.Error("its room is still taken after the call")
	}
}

// TestRoomIsGivenBack by replies that nobody waits for, by events, and by a connection that
// ends while it waits.
func TestRoomIsGivenBack(t *testing.T) {
	long := `"` + strings.Repeat("x", most/2) + `"`
	room := semaphore.NewWeighted(testRoom)
	p, client := startPeer(t, qmp.WithMaxMessageSize(most), qmp.WithRoom(room, 1<<10))
	ctx, leave := context.WithCancel(testContext(t))
	left := make(chan error, 1)
	go func() { left <- client.Execute(ctx, "query-long", nil, nil) }()
	r := p.receive()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	go func() {
		p.reply(r, long)
		p.send(`{"return":` + long + `,"id":5}` + "\n")
		p.send(`{"event":"LONG","data":` + long + `}` + "\n")
		p.reply(p.receive(), `{}`)
	}()
	if err := client.Execute(testContext(t), "flush", nil, nil); err != nil {
		t.Fatal(err)
	}
	if !room.TryAcquire(testRoom) {
		t.Fatal("room is taken by messages that nobody has")
	}
	// The room stays taken, and the reader waits for it, or will.
	go p.conn.Write([]byte(`{"event":"LONG","data":` + long + `}` + "\n"))
	client.Close()
}

// TestUntrustedMessages: what takes more memory than an honest peer's is not decoded, and
// not kept.
func TestUntrustedMessages(t *testing.T) {
	const values, eventBytes = 1 << 10, 64 << 10
	room := semaphore.NewWeighted(testRoom)
	p, client := startPeer(t, qmp.WithMaxMessageSize(most), qmp.WithEventBytes(eventBytes), qmp.WithRoom(room, values))
	sub := client.Subscribe()
	go func() {
		p.send(`{"event":"LARGE","data":"` + strings.Repeat("x", eventBytes/2) + `"}` + "\n")
		p.send(`{"event":"SMALL","data":"x"}` + "\n")
		p.reply(p.receive(), `[{}`+strings.Repeat(",{}", values)+`]`)
	}()
	var into []struct{ Large [100]string }
	if err := client.Execute(testContext(t), "query-values", nil, &into); !errors.Is(err, qmp.ErrMessageTooLong) {
		t.Errorf("%d values: %v", len(into), err)
	}
	var missed *qmp.MissedError
	if _, err := sub.Next(testContext(t)); !errors.As(err, &missed) || missed.Dropped != 1 {
		t.Errorf("of a large event: %v", err)
	}
	if event := next(t, sub); event.Name != "SMALL" {
		t.Errorf("got %s", event.Name)
	}
	near, far := net.Pipe()
	go io.WriteString(far, strings.Repeat("x", 32<<10)) // until the client ends it
	if _, err := qmp.New(testContext(t), near, qmp.WithMaxMessageSize(most), qmp.WithRoom(room, values)); !errors.Is(err, qmp.ErrMessageTooLong) {
		t.Errorf("a greeting without end: %v", err)
	}
}
