// Package driver is QEMU as the shim sees it: what stops, saves, loads and ends
// a VM, over QMP.
package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// maxMessage bounds what QEMU may send at once, in bytes: none of the commands
// used here has a reply of more than a few KiB.
const maxMessage = 1 << 20

// QEMU is the driver; it has no state.
type QEMU struct{}

var _ control.Driver = QEMU{}

// Connect negotiates on the monitor that is the shim's.
func (QEMU) Connect(ctx context.Context, link control.Link) (control.Machine, error) {
	conn, err := link.Dial(ctx, wire.ShimMonitor)
	if err != nil {
		return nil, err
	}
	client, err := qmp.New(ctx, conn, qmp.WithMaxMessageSize(maxMessage), qmp.WithPatience(qmp.CallTime))
	if err != nil {
		return nil, wrap(err)
	}
	m := &machine{qmp: client, dial: link.Dial, agent: make(chan struct{}, 1), ended: make(chan struct{}), wasReset: link.Reset}
	go m.follow(client.Subscribe("SHUTDOWN", "SUSPEND_DISK", "GUEST_PANICKED", "RESET"))
	if err := m.begin(ctx, link.Plan); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// begin does what the command line could not say. The guest does not run yet.
func (m *machine) begin(ctx context.Context, p *plan.Plan) error {
	if p == nil || p.Instructions == nil {
		return nil
	}
	var start wire.Start
	if err := json.Unmarshal(p.Instructions, &start); err != nil {
		return fmt.Errorf("%w: %w", errInstructions, err)
	}
	for _, c := range start.Commands {
		if err := m.execute(ctx, c.Name, arguments(c), nil); err != nil {
			return err
		}
	}
	return nil
}

// machine is one QEMU.
type machine struct {
	qmp    *qmp.Client
	ending control.Ending // complete when ended is closed
	ended  chan struct{}
	// dial reaches the guest's agent, and agent is held while it is spoken to: it has one
	// channel.
	dial   control.Dialer
	agent  chan struct{}
	reboot rebooting
	// wasReset is called when the guest was; nil: nobody asks.
	wasReset func()
	// saved: QEMU may have given up its disks at the end of a save, and has not gone on
	// since, as far as is known here.
	saved atomic.Bool
	// handedOver: QEMU began to hand its guest over, or to receive one, and may still have the settings for that.
	handedOver atomic.Bool
}

// follow notes what QEMU says of its end and of the guest's resets.
func (m *machine) follow(events *qmp.Subscription) {
	defer close(m.ended)
	defer events.Close()
	for {
		event, err := events.Next(context.Background())
		var missed *qmp.MissedError
		if errors.As(err, &missed) {
			continue
		}
		if err != nil {
			return
		}
		switch {
		case event.Name == "SUSPEND_DISK": // its shutdown follows
			m.ending.Suspended = true
		case event.Name == "RESET":
			m.ending.Suspended = false
			if m.wasReset != nil {
				m.wasReset()
			}
		case !m.reboots(event):
			m.note(event)
		}
	}
}

// note reads ShutdownCause of QEMU's qapi/run-state.json.
func (m *machine) note(event qmp.Event) {
	if event.Name == "GUEST_PANICKED" {
		m.ending.Panicked = true
		return
	}
	var data struct {
		Guest  bool   `json:"guest"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(event.Data, &data) != nil {
		return // it stays unknown, and the VM counts as crashed
	}
	switch {
	case data.Reason == "guest-panic":
		m.ending.Panicked = true
	case data.Guest:
		m.ending.Shutdown = true
	case data.Reason == "host-qmp-quit":
		m.ending.Told = true
	}
}

// Ending implements control.Machine.
func (m *machine) Ending(ctx context.Context) control.Ending {
	select {
	case <-m.ended:
		return m.ending
	case <-ctx.Done():
		return control.Ending{}
	}
}

// Close implements control.Machine.
func (m *machine) Close() error { return m.qmp.Close() }

// status is StatusInfo of qapi/run-state.json.
type status struct {
	Running bool   `json:"running"`
	Status  string `json:"status"`
}

func (m *machine) status(ctx context.Context) (status, error) {
	var s status
	err := m.execute(ctx, "query-status", nil, &s)
	return s, err
}

// Stop implements control.Machine. QEMU's stop drains all block devices.
func (m *machine) Stop(ctx context.Context) (bool, error) {
	before, err := m.status(ctx)
	if err != nil || !before.Running {
		return false, err
	}
	if err := m.execute(ctx, "stop", nil, nil); err != nil {
		return true, err
	}
	after, err := m.status(ctx)
	if err == nil && after.Running {
		err = fmt.Errorf("QEMU is %q after stop", after.Status)
	}
	return true, err
}

// Continue implements control.Machine. QEMU answers cont with OK also where it
// does nothing, so its status is what counts.
func (m *machine) Continue(ctx context.Context) error {
	if err := m.execute(ctx, "cont", nil, nil); err != nil {
		return err
	}
	m.saved.Store(false)
	s, err := m.status(ctx)
	// A guest that sleeps (ACPI S3) doesn't run and is not held up either.
	if err == nil && !s.Running && s.Status != "suspended" {
		err = fmt.Errorf("QEMU is %q after cont", s.Status)
	}
	return err
}

// vcpu is one of query-cpus-fast.
type vcpu struct {
	Index  int `json:"cpu-index"`
	Thread int `json:"thread-id"`
}

// VCPUThreads implements control.VCPUThreader.
func (m *machine) VCPUThreads(ctx context.Context) (threads []int, err error) {
	var cpus []vcpu
	if err := m.execute(ctx, "query-cpus-fast", nil, &cpus); err != nil {
		return nil, err
	}
	if len(cpus) == 0 {
		return nil, errors.New("query-cpus-fast: QEMU has no vCPUs")
	}
	slices.SortFunc(cpus, func(a, b vcpu) int { return cmp.Compare(a.Index, b.Index) })
	for _, c := range cpus {
		threads = append(threads, c.Thread)
	}
	return threads, nil
}

// Regain implements control.Machine. QEMU takes its disks back when it goes on, and
// not before.
func (m *machine) Regain(context.Context) error { return nil }

// PowerDown implements control.Machine.
func (m *machine) PowerDown(ctx context.Context) error {
	if err := m.noReboot(ctx); err != nil {
		return err
	}
	return m.execute(ctx, "system_powerdown", nil, nil)
}

// Quit implements control.Machine.
func (m *machine) Quit(ctx context.Context) error {
	err := m.execute(ctx, "quit", nil, nil)
	if errors.Is(err, control.ErrMonitorClosed) {
		return nil // QEMU may be gone before it has answered
	}
	return err
}

func (m *machine) execute(ctx context.Context, command string, args, result any) error {
	return wrap(m.qmp.Execute(ctx, command, args, result))
}

// wrap tells the shim of the end of a connection in its own words.
func wrap(err error) error {
	if errors.Is(err, qmp.ErrDisconnected) {
		return fmt.Errorf("%w: %w", control.ErrMonitorClosed, err)
	}
	return err
}
