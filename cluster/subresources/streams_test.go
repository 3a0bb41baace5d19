package subresources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/suites"
)

// TestStreamsAreJoined: what is sent comes back from the guest, as bytes with nothing around
// them, for clients that ask for the subprotocol and for those that don't.
func TestStreamsAreJoined(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"virtualmachineinstances/web/console", "virtualmachineinstances/web/portforward/22", "virtualmachineinstances/web/portforward/22/tcp", "virtualmachines/web/portforward/22/tcp", "virtualmachineinstances/web/portforward/22/udp"} {
		conn, answer, err := w.dial(t, path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got := answer.Header.Get("Sec-Websocket-Protocol"); got != "plain.kubevirt.io" {
			t.Errorf("%s: subprotocol %q", path, got)
		}
		must(t, conn.WriteMessage(websocket.BinaryMessage, []byte("hello\x00")))
		kind, b, err := conn.ReadMessage()
		if kind != websocket.BinaryMessage || string(b) != "hello\x00" || err != nil {
			t.Errorf("%s: read %q in a message of kind %d, %v", path, b, kind, err)
		}
	}
	browser, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(w.url, "http")+"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/web/console",
		http.Header{"X-Remote-User": {"alice"}, "Origin": {"https://elsewhere.example"}})
	must(t, err)
	defer browser.Close()
	must(t, browser.WriteMessage(websocket.TextMessage, []byte("hi")))
	if _, b, err := browser.ReadMessage(); string(b) != "hi" || err != nil {
		t.Errorf("a browser read %q, %v", b, err)
	}
}

// TestLastBytes: what a client sends last reaches the guest though the client leaves.
func TestLastBytes(t *testing.T) {
	w := newWorld(t, nil)
	conn, _, err := w.dial(t, "virtualmachineinstances/web/portforward/22")
	must(t, err)
	text := bytes.Repeat([]byte("0123456789"), 10_000)
	must(t, conn.WriteMessage(websocket.BinaryMessage, text))
	var got []byte
	for len(got) < len(text) {
		_, b, err := conn.ReadMessage()
		must(t, err)
		if got = append(got, b...); len(b) > 2*pieceSize {
			t.Fatalf("a piece of %d bytes", len(b))
		}
	}
	if !bytes.Equal(got, text) {
		t.Error("other bytes came back")
	}
	must(t, conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")))
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("after its end: %v, want a normal closure", err)
	}
}

// TestClientLeaves: the stream of a client that has gone ends, though its guest is silent.
func TestClientLeaves(t *testing.T) {
	w := newWorld(t, nil)
	w.guests.Display = true
	for _, path := range []string{"console", "vnc", "portforward/22/udp"} {
		conn, _, err := w.dial(t, "virtualmachineinstances/web/"+path)
		must(t, err)
		conn.Close()
	}
	ctx, cancel := suites.Wait(t.Context(), t, testPatience)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		w.streams.mu.Lock()
		left := len(w.streams.all)
		w.streams.mu.Unlock()
		if left == 0 && w.guests.Ended() == 1 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%d streams are left, and %d consoles of the agent have ended, want 0 and 1", left, w.guests.Ended())
		}
	}
}

// TestStreamsAreRefused: by which code, before the stream begins.
func TestStreamsAreRefused(t *testing.T) {
	const console, forward = "virtualmachineinstances/web/console", "virtualmachineinstances/web/portforward/22/tcp"
	noConsole := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.AutoattachSerialConsole = new(false)
	}
	noInterface := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Interfaces = nil
	}
	for name, c := range map[string]struct {
		is   changed
		path string
		want int
	}{
		"console, not running yet":     {phase(kubevirtv1.PhaseScheduled), console, 400},
		"console, failed":              {phase(kubevirtv1.PhaseFailed), console, 409},
		"console, none":                {noConsole, console, 400},
		"console, no instance":         {off, console, 404},
		"vnc, no display":              {nil, "virtualmachineinstances/web/vnc", 400},
		"vnc, not running":             {phase(kubevirtv1.PhasePending), "virtualmachineinstances/web/vnc?preserveSession=true", 400},
		"forward, paused":              {vmiCondition("Paused"), forward, 409},
		"forward, no interface":        {noInterface, forward, 400},
		"forward, nobody listens":      {nil, "virtualmachineinstances/web/portforward/23/tcp", 500},
		"forward, no port":             {nil, "virtualmachineinstances/web/portforward/http", 400},
		"forward, port 0":              {nil, "virtualmachineinstances/web/portforward/0", 400},
		"forward, a large port":        {nil, "virtualmachineinstances/web/portforward/65536", 400},
		"forward, another protocol":    {nil, "virtualmachineinstances/web/portforward/22/sctp", 400},
		"forward, more":                {nil, forward + "/x", 400},
		"forward, the VM is off":       {off, "virtualmachines/web/portforward/22/tcp", 409},
		"forward, no such VM":          {nil, "virtualmachines/db/portforward/22/tcp", 404},
		"forward, instance goes again": {phase(kubevirtv1.PhaseSucceeded), forward, 409},
	} {
		w := newWorld(t, c.is)
		_, answer, err := w.dial(t, c.path)
		if err == nil || answer == nil || answer.StatusCode != c.want {
			t.Errorf("%s: %v, %+v, want %d", name, err, answer, c.want)
		}
	}
}

// TestTakeover: the client before is cut off, without a word by which virtctl would take it for
// a decent end.
func TestTakeover(t *testing.T) {
	w := newWorld(t, nil)
	first, _, err := w.dial(t, "virtualmachineinstances/web/console")
	must(t, err)
	must(t, first.WriteMessage(websocket.BinaryMessage, []byte("x")))
	_, _, err = first.ReadMessage()
	must(t, err)
	second, _, err := w.dial(t, "virtualmachineinstances/web/console")
	must(t, err)
	if _, _, err := first.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseAbnormalClosure) {
		t.Errorf("the first ended with %v, want code 1006", err)
	}
	must(t, second.WriteMessage(websocket.BinaryMessage, []byte("y")))
	if _, b, err := second.ReadMessage(); string(b) != "y" || err != nil {
		t.Errorf("the second read %q, %v", b, err)
	}
}

// TestDisplay: bytes both ways; a client that asks for it disturbs nobody who is connected.
func TestDisplay(t *testing.T) {
	w := newWorld(t, nil)
	w.guests.Display = true
	conn, _, err := w.dial(t, "virtualmachineinstances/web/vnc")
	must(t, err)
	must(t, conn.WriteMessage(websocket.BinaryMessage, []byte("RFB 003.008\n")))
	if _, b, err := conn.ReadMessage(); string(b) != "RFB 003.008\n" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if _, answer, err := w.dial(t, "virtualmachineinstances/web/vnc?preserveSession=true"); err == nil || answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while another is connected: %v, want 503", err)
	}
}

// TestAgentGoes: a client is told why its stream ended.
func TestAgentGoes(t *testing.T) {
	w := newWorld(t, nil)
	conn, _, err := w.dial(t, "virtualmachineinstances/web/console")
	must(t, err)
	w.stopAgent()
	_, _, err = conn.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseInternalServerErr) || !strings.Contains(err.Error(), "agent of the guest's node was lost") {
		t.Errorf("it ended with %v, want code 1011 and the reason", err)
	}
	if _, answer, err := w.dial(t, "virtualmachineinstances/web/console"); err == nil || answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %v, want 503", err)
	}
}

// TestTooMany: one stream more than there may be is refused, and the others stay.
func TestTooMany(t *testing.T) {
	w := newWorld(t, nil)
	var leave func()
	for n := range maxStreams {
		_, l, err := w.streams.begin(t.Context(), fmt.Sprint(n%10))
		must(t, err)
		leave = l
	}
	const console = "virtualmachineinstances/web/console"
	if _, answer, err := w.dial(t, console); err == nil || answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %v, want 429, and when to come again", err)
	}
	leave()
	if _, _, err := w.dial(t, console); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}

// TestReplaced: streams end with the reason when the program does, also where a client doesn't
// read; none begins after that.
func TestReplaced(t *testing.T) {
	w := newWorld(t, nil)
	conn, _, err := w.dial(t, "virtualmachineinstances/web/console")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	w.Leave(ctx)
	must(t, ctx.Err())
	_, _, err = conn.ReadMessage()
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway || closed.Text != errReplaced.Error() {
		t.Errorf("it ended with %v, want code 1001 and the reason", err)
	}
	if _, answer, err := w.dial(t, "virtualmachineinstances/web/console"); err == nil || answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %v, want 503", err)
	}
	w.Leave(ctx) // twice is as good
}

// TestManyConsoles: 200 guests flood their consoles; clients that don't read cost a bounded part
// of memory, which is that of clients, server and agent here, and keep nobody else from reading.
func TestManyConsoles(t *testing.T) {
	const clients, readers, enough, most = 200, 20, 1 << 20, 128 << 20
	w := newWorld(t, nil)
	w.guests.Floods = true
	before := inUse()
	var all []*websocket.Conn
	for n := range clients {
		vm, vmi := running1()
		vm.Name, vmi.Name = fmt.Sprint("vm-", n), fmt.Sprint("vm-", n)
		p := pod()
		p.Name = "virt-launcher-" + vmi.Name
		must(t, w.Create(t.Context(), vmi))
		must(t, w.Create(t.Context(), p))
		conn, _, err := w.dial(t, "virtualmachineinstances/"+vmi.Name+"/console")
		must(t, err)
		all = append(all, conn)
	}
	ctx, cancel := suites.Wait(t.Context(), t, testPatience)
	defer cancel()
	var reading sync.WaitGroup
	for _, conn := range all[:readers] {
		must(t, conn.SetReadDeadline(time.Time{}))
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		reading.Go(func() {
			for got := int64(0); got < enough; {
				_, m, err := conn.NextReader()
				if err != nil {
					t.Errorf("a reader has %d bytes: %v", got, err)
					return
				}
				n, _ := io.Copy(io.Discard, m)
				got += n
			}
		})
	}
	reading.Wait()
	if grown := inUse() - before; grown > most {
		t.Errorf("%d consoles take %d MiB, want %d at most", clients, grown>>20, most>>20)
	}
}

// inUse is the heap with nothing left to be collected.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestCut: nothing of a character is left that does not fit.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"gäste", 9, "gäste"}, {"gäste", 3, "gä"}, {"gäste", 2, "g"}, {"g\xff", 9, "g"}} {
		if got := cut(c.text, c.most); got != c.want {
			t.Errorf("%d bytes of %q: %q, want %q", c.most, c.text, got, c.want)
		}
	}
}
