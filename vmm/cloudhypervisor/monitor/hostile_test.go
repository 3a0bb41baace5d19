package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/time/rate"
)

// liar is what a pod may have in the place of cloud-hypervisor and the shim's driver.
type liar struct {
	api    func(net.Conn) // after a request
	events func(net.Conn)
}

func (l *liar) dial(_ context.Context, name string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if name == wire.EventsSocket {
			l.events(theirs)
			return
		}
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
			l.api(theirs)
		}
	}()
	return ours, nil
}

// quiet events are those of a VM that nothing happens to.
func quiet(conn net.Conn) {
	io.WriteString(conn, `{"state":{}}`+"\n")
	io.Copy(io.Discard, conn)
}

// repeat writes the same until nobody reads it.
func repeat(text string) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	}
}

func reply(body string) func(net.Conn) {
	return func(conn net.Conn) {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// TestHostileAPI: what answers on the API's socket may be anything. Each call ends, with
// an error that can be shown, or with little.
func TestHostileAPI(t *testing.T) {
	for name, c := range map[string]struct {
		api  func(net.Conn)
		want string
	}{
		"another protocol": {func(conn net.Conn) { io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n") }, "cloud-hypervisor"},
		"endless headers":  {repeat("X-Long: " + strings.Repeat("x", 1000) + "\r\n"), "cloud-hypervisor"},
		"an endless line":  {repeat(strings.Repeat("x", 1000)), "cloud-hypervisor"},
		"an endless body": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
			repeat("[")(conn)
		}, "at most"},
		"a deep body":    {reply(strings.Repeat("[", 1<<20)), "cloud-hypervisor"},
		"a long refusal": {func(conn net.Conn) { refuse(conn, strings.Repeat("no ", 1<<19)) }, "no no"},
		"hangs up":       {func(net.Conn) {}, "cloud-hypervisor"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &liar{api: c.api, events: quiet}
			m, err := Connect(t.Context(), l.dial, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			_, statusErr := m.Status(t.Context())
			_, sampleErr := m.(vmm.Sampler).Sample(t.Context())
			for call, err := range map[string]error{
				"status": statusErr, "sample": sampleErr, "pause": m.Pause(t.Context()), "resume": m.Resume(t.Context()), "reset": m.Reset(t.Context()),
			} {
				if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 64<<10 {
					t.Errorf("%s: %.300v, want %q", call, err, c.want)
				}
			}
		})
	}
}

func refuse(conn net.Conn, cause string) {
	body, _ := json.Marshal([]string{cause})
	fmt.Fprintf(conn, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestHostileAnswers are what cloud-hypervisor might say, but for the amount.
func TestHostileAnswers(t *testing.T) {
	disks := make(map[string]map[string]uint64)
	for i := range 20000 {
		disks[fmt.Sprintf("disk%d", i)] = map[string]uint64{"read_ops": 1}
	}
	counters, err := json.Marshal(disks)
	if err != nil {
		t.Fatal(err)
	}
	info := fmt.Sprintf(`{"state":%q,"memory_actual_size":18446744073709551615,"config":{"balloon":{"size":0}}}`, strings.Repeat("Running", 1000))
	calls := 0
	l := &liar{events: quiet, api: func(conn net.Conn) {
		calls++
		if calls%3 == 0 { // each sample begins with the state
			reply(string(counters))(conn)
			return
		}
		reply(info)(conn)
	}}
	m, err := Connect(t.Context(), l.dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.Status(t.Context())
	if err != nil || len(s.Detail) > maxState || s.Running {
		t.Errorf("%+v, %v", s, err)
	}
	sample, err := m.(vmm.Sampler).Sample(t.Context())
	if err != nil || len(sample.Disks) != maxDisks || sample.Balloon != nil {
		t.Errorf("%d disks, balloon %v, %v", len(sample.Disks), sample.Balloon, err)
	}
}

// TestHang: a VMM that accepts and says nothing costs a call's time, and closing none.
func TestHang(t *testing.T) {
	l := &liar{api: func(conn net.Conn) { io.Copy(io.Discard, conn) }, events: func(conn net.Conn) {
		// To find out what was dropped it is asked.
		io.WriteString(conn, `{"state":{}}`+"\n"+`{"state":{"dropped":1}}`+"\n")
		io.Copy(io.Discard, conn)
	}}
	m, err := Connect(t.Context(), l.dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := m.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	m.Close()
	for range m.Events() { // up to their end
	}
}

// TestFlood: frames that mean nothing are not read faster than others, and don't keep
// the monitor from being closed.
func TestFlood(t *testing.T) {
	for name, line := range map[string]string{
		"of drivers": `{"event":{"source":"virtio-device","name":"activated"}}`, "of states": `{"state":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			conn, other := net.Pipe()
			defer other.Close()
			m := &monitor{conn: conn, events: make(chan vmm.Event), done: make(chan struct{})}
			m.ctx, m.cancel = context.WithCancel(t.Context())
			flood := strings.NewReader(strings.Repeat(line+"\n", 100000))
			go m.pump(wire.NewFrames(flood), rate.NewLimiter(0, 10))
			m.Close()
			if flood.Len() == 0 {
				t.Error("all of it was read")
			}
		})
	}
}
