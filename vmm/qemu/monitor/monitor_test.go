package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// TestMonitorHangs: a QEMU that does nothing any more is not waited for without end.
func TestMonitorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monitor, err := Connect(t.Context(), func(context.Context, string) (net.Conn, error) { return qmptest.Hangs(), nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer monitor.Close()
		if err := monitor.Pause(t.Context()); !errors.Is(err, qmp.ErrSilent) {
			t.Errorf("pause: %v", err)
		}
	})
}

func TestChange(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       vmm.Change
	}{
		{"STOP", "", vmm.ChangePaused},
		{"RESUME", "", vmm.ChangeResumed},
		{"RESET", `{"guest": true}`, vmm.ChangeReset},
		{"GUEST_PANICKED", `{"action": "pause"}`, vmm.ChangePanicked},
		{"VSERPORT_CHANGE", `{"id": "guest-agent-port", "open": true}`, vmm.ChangeAgentConnected},
		{"VSERPORT_CHANGE", `{"id": "guest-agent-port", "open": false}`, vmm.ChangeAgentDisconnected},
		{"VSERPORT_CHANGE", `{"id": "another", "open": true}`, vmm.ChangeNone},
		{"VSERPORT_CHANGE", `[]`, vmm.ChangeNone},
		{"VSERPORT_CHANGE", "", vmm.ChangeNone},
		{"WATCHDOG", `{"action": "reset"}`, vmm.ChangeNone},
		{"BLOCK_IO_ERROR", `{"action": "report", "operation": "write"}`, vmm.ChangeNone},
		{"BLOCK_IO_ERROR", `[]`, vmm.ChangeNone},
		{"FROM_THE_FUTURE", `{}`, vmm.ChangeNone},
	} {
		if got := change(qmp.Event{Name: c.name, Data: json.RawMessage(c.data)}); got != c.want {
			t.Errorf("%s %s means %d, want %d", c.name, c.data, got, c.want)
		}
	}
}

// TestSetGuestTimeWithoutAgent: nobody has opened the port, so nothing answers.
func TestSetGuestTimeWithoutAgent(t *testing.T) {
	silent := func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		go io.Copy(io.Discard, theirs)
		return ours, nil
	}
	none := func(context.Context, string) (net.Conn, error) { return nil, errors.New("no such socket") }
	for name, dial := range map[string]vmm.Dialer{"silent": silent, "none": none} {
		ctx, cancel := context.WithCancel(t.Context())
		m := &monitor{dial: func(ctx context.Context, name string) (net.Conn, error) {
			if name != wire.GuestAgent {
				t.Errorf("dialed %q", name)
			}
			conn, err := dial(ctx, name)
			cancel() // whoever waits from now on has waited too long
			return conn, err
		}, agent: make(chan struct{}, 1)}
		if err := m.SetGuestTime(ctx, time.Now()); !errors.Is(err, vmm.ErrNoGuestAgent) {
			t.Errorf("%s: error %v, want ErrNoGuestAgent", name, err)
		}
	}
}
