package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/suites"
)

const awaits = 20 * time.Second

// ends are a Peer and a stranger at the other end.
func ends(t testing.TB, handle Handler) (*Peer, *net.UnixConn) {
	t.Helper()
	a, f, err := unixsocket.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPeer(a.(*net.UnixConn), handle)
	t.Cleanup(func() { p.Close(); b.Close() })
	return p, b.(*net.UnixConn)
}

func frame(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// TestStrangers: whatever the other side sends, a call ends in time, with an error or the
// answer, and never more than its bound is read.
func TestStrangers(t *testing.T) {
	const lost, answered, over = "lost", "answered", "over"
	for _, c := range []struct {
		name string
		do   func(w *net.UnixConn)
		want string
	}{
		{"it hangs up", func(w *net.UnixConn) { w.Close() }, lost},
		{"it says nothing", func(*net.UnixConn) {}, over},
		{"no JSON", func(w *net.UnixConn) { w.Write(frame("nonsense")) }, lost},
		{"half a frame", func(w *net.UnixConn) { w.Write(frame(`{"id":1}`)[:6]); w.Close() }, lost},
		{"a frame that is too large", func(w *net.UnixConn) { w.Write(binary.BigEndian.AppendUint32(nil, MaxMessage+1)) }, lost},
		{"a frame that is announced, and never comes", func(w *net.UnixConn) { w.Write(binary.BigEndian.AppendUint32(nil, MaxMessage)) }, over},
		{"an answer to a call that was not made", func(w *net.UnixConn) { w.Write(frame(`{"id":99}`)) }, lost},
		{"an answer to nothing", func(w *net.UnixConn) { w.Write(frame(`{}`)) }, lost},
		{"a body of another kind", func(w *net.UnixConn) { w.Write(frame(`{"id":1,"body":[1]}`)) }, "invalid"},
		{"an error without a code", func(w *net.UnixConn) { w.Write(frame(`{"id":1,"error":{}}`)) }, "error"},
		{"unknown fields", func(w *net.UnixConn) { w.Write(frame(`{"id":1,"later":{"a":1},"body":{"driver":"x","later":2}}`)) }, answered},
		{"the answer twice", func(w *net.UnixConn) { w.Write(append(frame(`{"id":1,"body":{}}`), frame(`{"id":1,"body":{}}`)...)) }, answered},
		{"a cancel of nothing, then the answer", func(w *net.UnixConn) { w.Write(append(frame(`{"id":5,"cancel":true}`), frame(`{"id":1}`)...)) }, answered},
		{"one call twice", func(w *net.UnixConn) {
			w.Write(append(frame(`{"id":1,"method":"Hang"}`), frame(`{"id":1,"method":"Hang"}`)...))
		}, lost},
		{"a flood of calls", func(w *net.UnixConn) {
			for i := range MaxAtOnce + 1 {
				w.Write(frame(fmt.Sprintf(`{"id":%d,"method":"Hang"}`, i+1)))
			}
		}, lost},
		{"a flood of messages that nobody answers", func(w *net.UnixConn) {
			for range 10000 {
				w.Write(frame(`{"method":"Event"}`))
			}
			w.Write(frame(`{"id":1}`))
		}, answered},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, stranger := ends(t, func(ctx context.Context, call *Call) (any, []*os.File, error) {
				if call.Method == "Hang" {
					<-ctx.Done()
				}
				return nil, nil, nil
			})
			ctx, cancel := suites.Wait(t.Context(), t, awaits)
			defer cancel()
			go func() {
				buf := make([]byte, 1<<16)
				if _, err := stranger.Read(buf); err != nil {
					return
				}
				c.do(stranger)
				if c.want == over { // there is no answer to wait for
					cancel()
				}
			}()
			_, err := p.Call(ctx, "Negotiate", NegotiateRequest{Versions: []int{1}}, new(NegotiateResponse))
			got := answered
			switch {
			case errors.Is(err, ErrLost):
				got = lost
			case errors.Is(err, context.Canceled):
				got = over
			case CodeOf(err) == CodeInvalid:
				got = "invalid"
			case err != nil:
				got = "error"
			}
			if got != c.want {
				t.Errorf("the call: %v (%s), want %s", err, got, c.want)
			}
		})
	}
}

// TestOneWhoDoesNotRead: the sender gives up, and the connection ends.
func TestOneWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	p, _ := ends(t, nil)
	var err error
	for range 100 {
		if err = p.Notify(t.Context(), "Event", EventRequest{Name: strings.Repeat("x", 1<<20)}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrLost) || p.Err() == nil {
		t.Errorf("100 MiB for somebody who does not read: %v, and the connection: %v", err, p.Err())
	}
}

// TestDescriptorsDoNotLeak: those that nobody asked for are closed.
func TestDescriptorsDoNotLeak(t *testing.T) {
	p, stranger := ends(t, func(context.Context, *Call) (any, []*os.File, error) { return nil, nil, nil })
	w := shim.NewWire(stranger)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := open(t)
	for i := range 50 {
		for _, f := range []Frame{{ID: uint32(i + 1), Method: "Any"}, {Method: "Event"}, {ID: 1, Cancel: true}} {
			if err := w.Send(f, null, null, null); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Send(Frame{ID: 99}, null); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	p.Wait()
	if after := open(t); after > before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

func open(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestCancel: the other side is told when nobody waits any more.
func TestCancel(t *testing.T) {
	begun, told := make(chan struct{}), make(chan struct{})
	a, b := ends(t, nil)
	NewPeer(b, func(ctx context.Context, _ *Call) (any, []*os.File, error) {
		close(begun)
		<-ctx.Done()
		close(told)
		return nil, nil, ctx.Err()
	})
	over, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	cancel(late)
	if _, err := a.Call(over, "Hang", nil, nil); !errors.Is(err, late) {
		t.Errorf("a call that was over before it began: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(late) }()
	if _, err := a.Call(ctx, "Hang", nil, nil); !errors.Is(err, late) {
		t.Errorf("the call: %v", err)
	}
	select {
	case <-told:
	case <-suites.After(t, awaits):
		t.Error("the other side was not told")
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		ours, theirs []int
		want         int
	}{
		{[]int{1}, []int{1}, 1}, {[]int{1, 2}, []int{1}, 1}, {[]int{1}, []int{2, 1}, 1}, {[]int{2, 1}, []int{1, 2, 3}, 2},
		{[]int{1}, []int{2}, 0}, {[]int{1}, nil, 0}, {nil, []int{1}, 0},
	} {
		got, err := Choose(c.ours, c.theirs)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("Choose(%v, %v) is %d, %v, want %d", c.ours, c.theirs, got, err, c.want)
		}
	}
}

func TestSocketOf(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../shim.sock", "shim.sock", "driver.sock", ".hidden", "A.sock", "a\x00", strings.Repeat("a", 65)} {
		if SocketOf(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, name := range []string{"qmp.sock", "ch.sock", "a_b-1.sock"} {
		if err := SocketOf(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzDriverFrames: no bytes crash a Peer, nor keep it from ending.
func FuzzDriverFrames(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"Dial","body":{"name":"x"}}`))
	f.Add([]byte(`{"id":1,"error":{"code":"invalid","faults":[{"field":"a"}]}}`))
	f.Add([]byte(`{"cancel":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, stranger := ends(t, func(_ context.Context, c *Call) (any, []*os.File, error) {
			var request DialRequest
			return nil, nil, c.Decode(&request)
		})
		_, _ = stranger.Write(frame(string(body)))
		_ = stranger.CloseWrite()
		select {
		case <-p.Done():
		case <-suites.After(t, awaits):
			t.Errorf("it goes on after the end: %q, JSON %v", body, json.Valid(body))
		}
		p.Wait()
	})
}
