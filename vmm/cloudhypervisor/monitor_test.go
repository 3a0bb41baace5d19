package cloudhypervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
)

// relay does what the shim's driver does with events, for one client.
func (h *host) relay() {
	listener, err := net.Listen("unix", h.path(chvm.EventsSocket))
	h.must(err)
	h.t.Cleanup(func() { listener.Close() })
	h.events = func(r io.ReadCloser) {
		defer r.Close()
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		send(conn, chvm.Frame{State: &chvm.State{}})
		events := chapi.NewEvents(r, chapi.DefaultMaxEvent)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			send(conn, chvm.Frame{Event: &chvm.Event{Time: time.Now(), Source: e.Source, Name: e.Name, Properties: e.Properties}})
		}
	}
}

func send(conn net.Conn, f chvm.Frame) {
	if line, err := f.Line(); err == nil {
		conn.Write(line)
	}
}

func (h *host) dial(ctx context.Context, name string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", h.path(name))
}

// await reads events up to one that means this.
func await(ctx context.Context, t *testing.T, m vmm.Monitor, want vmm.Change) {
	t.Helper()
	for {
		select {
		case e, ok := <-m.Events():
			if !ok {
				t.Fatal("the events have ended")
			}
			if e.Time.IsZero() || strings.HasPrefix(e.Name, "virtio-device") {
				t.Errorf("%+v", e)
			}
			if e.Change == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no change %d: %v", want, ctx.Err())
		}
	}
}

// TestMonitor leads a VM through its life by the agent's monitor alone, from when the
// shim has created it.
func TestMonitor(t *testing.T) {
	for name, program := range programs(t) {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/kvm"); err != nil && name == "real" {
				t.Skip(err)
			}
			monitorLife(standInContext(t), newHost(t, program))
		})
	}
}

func monitorLife(ctx context.Context, h *host) {
	t := h.t
	kernel, err := guest.PVH(guest.PVHOptions{})
	h.must(err)
	h.must(os.MkdirAll(h.path("boot"), 0o700))
	h.must(os.WriteFile(h.path("boot/vmlinuz"), kernel, 0o600))
	h.relay()
	c := planCase{yaml: "boot: {kernel: {path: /boot/vmlinuz}}\nmemory: {size: 64Mi}\ndisks: [{path: /images/a.img}]\n"}
	p, err := planVM(c.request(t))
	h.must(err)
	client := h.start(p)
	m, err := New(Config{}).Connect(ctx, h.dial)
	h.must(err)
	defer m.Close()
	h.must(client.Create(ctx, h.here(p.vm.Config)))

	status := func(running bool, detail chapi.State) {
		t.Helper()
		s, err := m.Status(ctx)
		if err != nil || s.Running != running || s.Panicked || s.Detail != string(detail) {
			t.Fatalf("%+v, %v; want %s", s, err, detail)
		}
	}
	status(false, chapi.StateCreated)
	h.must(m.Pause(ctx))
	h.must(m.Reset(ctx))
	sample(ctx, t, m, 0)
	status(false, chapi.StateCreated)
	h.must(m.Resume(ctx))
	await(ctx, t, m, vmm.ChangeResumed)
	status(true, chapi.StateRunning)
	h.console(p)
	sample(ctx, t, m, 1)
	for range 2 { // the second changes nothing
		h.must(m.Pause(ctx))
		status(false, chapi.StatePaused)
	}
	await(ctx, t, m, vmm.ChangePaused)
	h.must(m.Reset(ctx))
	await(ctx, t, m, vmm.ChangeReset)
	await(ctx, t, m, vmm.ChangePaused)
	status(false, chapi.StatePaused)
	for range 2 {
		h.must(m.Resume(ctx))
		status(true, chapi.StateRunning)
	}
	await(ctx, t, m, vmm.ChangeResumed)
	h.must(m.Reset(ctx))
	await(ctx, t, m, vmm.ChangeReset)
	status(true, chapi.StateRunning)
	if err := m.SetGuestTime(ctx, time.Now()); !errors.Is(err, vmm.ErrNoGuestAgent) {
		t.Error(err)
	}
	if err := client.ShutdownVMM(ctx); err != nil && !errors.Is(err, chapi.ErrDisconnected) {
		t.Error(err)
	}
	for range m.Events() { // up to their end
	}
	if s, err := m.Status(ctx); err == nil {
		t.Errorf("of a VMM that has gone: %+v", s)
	}
}

func sample(ctx context.Context, t *testing.T, m vmm.Monitor, disks int) {
	t.Helper()
	s, err := m.(vmm.Sampler).Sample(ctx)
	if err != nil || s.Balloon == nil || *s.Balloon != 64<<20 || s.Guest != nil || len(s.Disks) != disks {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, d := range s.Disks {
		if d.Reads == nil || d.Writes == nil || d.ReadBytes == nil || d.WrittenBytes == nil || d.Flushes != nil || d.ReadTime != nil {
			t.Errorf("%+v", d)
		}
	}
	if err := m.(vmm.Sampler).Rest(ctx); err != nil {
		t.Error(err)
	}
}

// TestBusy: a call that has to wait for another of the VMM's ends with its context, and
// says what is so.
func TestBusy(t *testing.T) {
	program, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, program)
	h.knobs.Slow = map[string]int{"vm.info": 1000000}
	h.relay()
	p, err := planVM(planCase{yaml: small}.request(t))
	h.must(err)
	h.start(p)
	m, err := New(Config{}).Connect(standInContext(t), h.dial)
	h.must(err)
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Status(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "one call after the other") {
		t.Error(err)
	}
}

// fakeVMM answers vm.info with a state, and has its driver say what a test wants.
type fakeVMM struct {
	t     *testing.T
	info  chapi.Info
	lines chan string
}

func (f *fakeVMM) dial(ctx context.Context, name string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if name == chvm.EventsSocket {
			for line := range f.lines {
				io.WriteString(theirs, line+"\n")
			}
			return
		}
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
			return
		}
		body, err := json.Marshal(f.info)
		if err != nil {
			f.t.Error(err)
		}
		fmt.Fprintf(theirs, "HTTP/1.1 200 \r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}()
	return ours, nil
}

func TestConnectRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{"event":{"source":"vm","name":"booted"}}`: "begins with an event",
		`{}`:                     "want an event or a state",
		`what`:                   "invalid character",
		strings.Repeat(" ", 1e6): "token too long",
	} {
		f := &fakeVMM{t: t, lines: make(chan string, 1)}
		f.lines <- line
		close(f.lines)
		if _, err := New(Config{}).Connect(t.Context(), f.dial); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", line, err)
		}
	}
	f := &fakeVMM{t: t, lines: make(chan string)}
	defer close(f.lines)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(Config{}).Connect(ctx, f.dial); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	gone := func(context.Context, string) (net.Conn, error) { return nil, os.ErrNotExist }
	if _, err := New(Config{}).Connect(t.Context(), gone); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), chvm.EventsSocket) {
		t.Error(err)
	}
}

// TestEvents: what each line means, and what is made up for those that were dropped.
func TestEvents(t *testing.T) {
	f := &fakeVMM{t: t, lines: make(chan string, 1), info: chapi.Info{State: chapi.StatePaused}}
	defer close(f.lines)
	f.lines <- `{"state":{"panicked":true}}`
	m, err := New(Config{}).Connect(t.Context(), f.dial)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	type meant struct {
		name    string
		change  vmm.Change
		dropped int
	}
	for _, c := range []struct {
		line     string
		want     []meant
		panicked bool
	}{
		{`{"event":{"source":"vm","name":"rebooting"}}`, []meant{{"vm/rebooting", vmm.ChangeNone, 0}}, true},
		{`{"event":{"source":"vm","name":"rebooted"}}`, []meant{{"vm/rebooted", vmm.ChangeReset, 0}}, false},
		{`{"event":{"source":"guest","name":"panic","properties":{"event":"crash_loaded"}}}`, []meant{{"guest/panic", vmm.ChangeNone, 0}}, false},
		{`{"event":{"source":"guest","name":"panic","properties":{"event":"panic"}}}`, []meant{{"guest/panic", vmm.ChangePanicked, 0}}, true},
		{`{"state":{"dropped":3}}`, []meant{{"vm/rebooted", vmm.ChangeReset, 3}, {"vm/paused", vmm.ChangePaused, 0}}, false},
		{`{"state":{"dropped":4}}`, []meant{{"vm/paused", vmm.ChangePaused, 4}}, false},
		{`{"state":{"dropped":-1,"panicked":true}}`, []meant{{"guest/panic", vmm.ChangePanicked, 0}}, true},
		{`{"event":{"source":"virtio-device","name":"activated"}}` + "\n" + `{"event":{"source":"vm","name":"resumed"}}`, []meant{{"vm/resumed", vmm.ChangeResumed, 0}}, true},
		{`{"event":{"source":"vmm","name":"paused"}}`, []meant{{"vmm/paused", vmm.ChangeNone, 0}}, true},
		{`{"event":{"source":"vm","name":"booted"}}`, []meant{{"vm/booted", vmm.ChangeResumed, 0}}, false},
	} {
		f.lines <- c.line
		for _, want := range c.want {
			if e := <-m.Events(); (meant{e.Name, e.Change, e.Dropped}) != want {
				t.Errorf("%s: %+v, want %+v", c.line, e, want)
			}
		}
		if s, err := m.Status(t.Context()); err != nil || s.Panicked != c.panicked || s.Running {
			t.Errorf("%s: %+v, %v", c.line, s, err)
		}
	}
	f.lines <- "garbage"
	if e, ok := <-m.Events(); ok {
		t.Errorf("%+v", e)
	}
}

func TestDiskSamples(t *testing.T) {
	n := func(n uint64) *uint64 { return &n }
	got := diskSamples(chapi.Counters{
		"disk10": {"read_ops": 1, "write_ops": chapi.Unmeasured, "read_bytes": math.MaxInt64},
		"disk2":  {},
		"disk02": {"read_ops": 9}, "disk-1": {}, "disk": {}, "disk99999": {}, "seed": {"read_ops": 1}, "net0": {}, "_disk0": {},
	})
	want := []vmm.DiskSample{{Index: 2}, {Index: 10, Reads: n(1), ReadBytes: n(math.MaxInt64)}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestFailedBoot: a VM whose boot failed is never booted again, by whoever asks: it
// might come up without its disks.
func TestFailedBoot(t *testing.T) {
	program, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"vm.boot", "vm.reboot"} {
		t.Run(call, func(t *testing.T) {
			ctx, h := standInContext(t), newHost(t, program)
			h.knobs.Refuse = map[string][]string{call: {"no such disk"}}
			p, err := planVM(planCase{yaml: small}.request(t))
			h.must(err)
			client := h.start(p)
			h.must(client.Create(ctx, h.here(p.vm.Config)))
			if call == "vm.reboot" {
				h.must(client.Boot(ctx))
				h.must(client.Shutdown(ctx)) // what is left of a VM whose reset failed
			}
			f := &fakeVMM{t: t, lines: make(chan string, 1)}
			defer close(f.lines)
			f.lines <- fmt.Sprintf(`{"state":{"bootTried":%t}}`, call == "vm.reboot")
			m, err := New(Config{}).Connect(ctx, func(ctx context.Context, name string) (net.Conn, error) {
				if name == chvm.EventsSocket {
					return f.dial(ctx, name)
				}
				return h.dial(ctx, name)
			})
			h.must(err)
			defer m.Close()
			if call == "vm.boot" {
				if err := m.Resume(ctx); err == nil || !strings.Contains(err.Error(), "no such disk") {
					t.Errorf("the first: %v", err)
				}
			}
			for name, do := range map[string]func(context.Context) error{"resume": m.Resume, "reset": m.Reset} {
				if err := do(ctx); err == nil || !strings.Contains(err.Error(), "kill it and start it again") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if s, err := m.Status(ctx); err != nil || s.Running {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}
