package driver

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// listening is a hub, and the path of its socket.
func listening(t *testing.T) (*hub, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ch")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := dir + "/events"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(listener)
	t.Cleanup(func() { h.close() })
	return h, path
}

// agent is a client of a hub.
type agent struct {
	t      *testing.T
	conn   net.Conn
	frames *wire.Frames
}

func dial(t *testing.T, path string) *agent {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	suites.Bound(t, conn, patience)
	return &agent{t, conn, wire.NewFrames(conn)}
}

func (a *agent) next() wire.Frame {
	a.t.Helper()
	f, err := a.frames.Next()
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

func (a *agent) wantState(want wire.State) {
	a.t.Helper()
	if f := a.next(); f.State == nil || *f.State != want {
		a.t.Errorf("%+v, want the state %+v", f.State, want)
	}
}

// wantEnd reads to the end of the connection.
func (a *agent) wantEnd() {
	a.t.Helper()
	if f, err := a.frames.Next(); err != io.EOF {
		a.t.Errorf("%+v, %v, want the end", f, err)
	}
}

func numbered(n int) chapi.Event { return chapi.Event{Source: "vm", Name: fmt.Sprint("event-", n)} }

// TestHubOrder: each client has all events in their order, after what was before.
func TestHubOrder(t *testing.T) {
	h, path := listening(t)
	one := dial(t, path)
	one.wantState(wire.State{})
	h.publish(chapi.Event{Source: "vm", Name: "booting"}, time.Now())
	h.publish(chapi.Event{Source: "guest", Name: "panic", Properties: []byte(`{"event":"panic"}`)}, time.Now())
	two := dial(t, path)
	two.wantState(wire.State{BootTried: true, Panicked: true})
	for _, want := range []string{"booting", "panic"} {
		if e := one.next().Event; e == nil || e.Name != want {
			t.Errorf("%+v, want %s", e, want)
		}
	}
	for n := range queue {
		h.publish(numbered(n), time.Now())
	}
	h.close() // they have what was published all the same
	for _, a := range []*agent{one, two} {
		for n := range queue {
			if e := a.next().Event; e == nil || e.Name != numbered(n).Name {
				t.Fatalf("%+v, want number %d", e, n)
			}
		}
		a.wantEnd()
	}
}

// TestHubSlowClient: who doesn't read loses events, is told how many, and hinders nobody.
func TestHubSlowClient(t *testing.T) {
	h, path := listening(t)
	slow, quick := dial(t, path), dial(t, path)
	slow.wantState(wire.State{})
	quick.wantState(wire.State{})
	const all = 20_000 // far more than a socket and a queue hold
	padding := []byte(`{"x":"` + strings.Repeat("x", 500) + `"}`)
	for n := range all {
		e := numbered(n)
		e.Properties = padding
		h.publish(e, time.Now())
		if f := quick.next(); f.Event == nil || f.Event.Name != e.Name {
			t.Fatalf("number %d: %+v", n, f)
		}
	}
	h.mu.Lock()
	dropped := 0
	for c := range h.clients {
		dropped += c.dropped
	}
	h.mu.Unlock()
	if dropped == 0 {
		t.Fatal("nothing was dropped: this tests nothing")
	}
	// Each gap is told before what follows it, and is as long as it says.
	last := make(chan string)
	go func() {
		seen := 0
		for {
			f, err := slow.frames.Next()
			switch {
			case err != nil:
				last <- fmt.Sprint(err)
				return
			case f.State != nil:
				seen += f.State.Dropped
			case f.Event.Name == "last":
				last <- fmt.Sprint(seen)
				return
			case f.Event.Name != numbered(seen).Name:
				last <- fmt.Sprintf("%s, and it counts %d", f.Event.Name, seen)
				return
			default:
				seen++
			}
		}
	}()
	for {
		h.publish(chapi.Event{Source: "vm", Name: "last"}, time.Now())
		select {
		case got := <-last:
			if got == "" || got < fmt.Sprint(all) {
				t.Errorf("it counts %s, want %d at least", got, all)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// TestHubClients: clients that come, go, talk, or hang up half leave nothing behind.
func TestHubClients(t *testing.T) {
	h, path := listening(t)
	before := runtime.NumGoroutine()
	for n := range 200 {
		a := dial(t, path)
		if n%2 == 0 {
			a.conn.Write([]byte("hello?"))
		}
		a.conn.(*net.UnixConn).CloseWrite()
		for { // a state, or nothing if there were too many; then the end
			if _, err := a.frames.Next(); err != nil {
				break
			}
		}
		a.conn.Close()
	}
	for runtime.NumGoroutine() > before {
		time.Sleep(time.Millisecond)
	}
	var kept []*agent
	for range maxClients {
		a := dial(t, path)
		a.wantState(wire.State{})
		kept = append(kept, a)
	}
	dial(t, path).wantEnd() // one too many
	kept[0].conn.Close()
	for { // until that is noticed
		a := dial(t, path)
		if _, err := a.frames.Next(); err == nil {
			break
		}
	}
	h.close()
	for _, a := range kept[1:] {
		a.wantEnd()
	}
	for runtime.NumGoroutine() > before {
		time.Sleep(time.Millisecond)
	}
}

// TestEventsOfAHostileVMM: what is no event ends the stream, and nothing else; the
// end of the VMM is told by how its process ended.
func TestEventsOfAHostileVMM(t *testing.T) {
	for name, bytes := range map[string]string{
		"garbage": "garbage",
		"endless": strings.Repeat(" ", 1<<20),
		"too big": `{"timestamp":{"secs":1,"nanos":1},"source":"vm","event":"` + strings.Repeat("x", maxEvent) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			m := r.connect()
			r.check(m.Continue(r.ctx))
			_, err := io.WriteString(r.tell, bytes)
			r.check(err)
			r.runs(m)
			a := dial(t, r.path(wire.EventsSocket))
			if f := a.next(); f.State == nil {
				t.Errorf("%+v", f)
			}
			r.check(m.Quit(r.ctx))
			r.check(r.tell.Close())
			if e := m.Ending(r.ctx); e != (control.Ending{Told: true}) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestFlood: events without end take no memory where nobody reads them.
func TestFlood(t *testing.T) {
	r := newRig(t)
	m := r.connect()
	slow := dial(t, r.path(wire.EventsSocket)) // it never reads
	defer slow.conn.Close()
	event := `{"timestamp":{"secs":1,"nanos":1},"source":"vm","event":"` + strings.Repeat("x", 3000) + `"}`
	for range 50_000 { // 150 MB
		if _, err := io.WriteString(r.tell, event); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	if now.HeapAlloc > 16<<20 {
		t.Errorf("%d MiB are in use", now.HeapAlloc>>20)
	}
	r.check(m.Continue(r.ctx))
}

// TestNothingLeft: a machine that is closed leaves no goroutine and no descriptor.
func TestNothingLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("machine", func(t *testing.T) {
		r := newRig(t)
		m := r.connect()
		a := dial(t, r.path(wire.EventsSocket))
		a.next()
		r.check(m.Close())
		<-m.ended
		for _, err := a.frames.Next(); err == nil; {
			_, err = a.frames.Next()
		}
		if _, err := r.link.Events.Stat(); err == nil {
			t.Error("the pipe is open")
		}
	})
	for runtime.NumGoroutine() > before {
		time.Sleep(time.Millisecond)
	}
}
