package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// relay does what the shim's driver does with events, for one client.
func (h *host) relay() {
	listener, err := net.Listen("unix", h.path(wire.EventsSocket))
	h.must(err)
	h.t.Cleanup(func() { listener.Close() })
	h.events = func(r io.ReadCloser) {
		defer r.Close()
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		send(conn, wire.Frame{State: &wire.State{}})
		events := chapi.NewEvents(r, chapi.DefaultMaxEvent)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			send(conn, wire.Frame{Event: &wire.Event{Time: time.Now(), Source: e.Source, Name: e.Name, Properties: e.Properties}})
		}
	}
}

func send(conn net.Conn, f wire.Frame) {
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
	c := vmtest.Case{YAML: "boot: {kernel: {path: /boot/vmlinuz}}\nmemory: {size: 64Mi}\ndisks: [{path: /images/a.img}]\n"}
	p, err := vmtest.Plan(c.Request(t))
	h.must(err)
	client := h.start(p)
	m, err := New(Config{}).Connect(ctx, h.dial)
	h.must(err)
	defer m.Close()
	h.must(client.Create(ctx, h.here(p.VM.Config)))

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
	p, err := vmtest.Plan(vmtest.Case{YAML: vmtest.Small}.Request(t))
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
			p, err := vmtest.Plan(vmtest.Case{YAML: vmtest.Small}.Request(t))
			h.must(err)
			client := h.start(p)
			h.must(client.Create(ctx, h.here(p.VM.Config)))
			if call == "vm.reboot" {
				h.must(client.Boot(ctx))
				h.must(client.Shutdown(ctx)) // what is left of a VM whose reset failed
			}
			events, driver := net.Pipe()
			defer driver.Close()
			go send(driver, wire.Frame{State: &wire.State{BootTried: call == "vm.reboot"}})
			m, err := New(Config{}).Connect(ctx, func(ctx context.Context, name string) (net.Conn, error) {
				if name == wire.EventsSocket {
					return events, nil
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
