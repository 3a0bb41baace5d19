// Package monitor is the agent's connection to a QEMU that runs: status, pause and
// resume, events, counters and size. The shim has a monitor of its own.
package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
	"golang.org/x/sync/semaphore"
)

// StateError means that a VM is in a state of QEMU's (RunState in
// qapi/run-state.json) in which it can't do what was asked.
type StateError struct {
	// Action is what was asked: "resume". State is QEMU's word: "internal-error".
	Action, State string
	// Remedy says what can be done.
	Remedy string
}

// Error names the action and the state, and says what to do.
func (e *StateError) Error() string {
	return fmt.Sprintf("can't %s: QEMU is in state %q: %s", e.Action, e.State, e.Remedy)
}

// monitor implements vmm.Monitor.
type monitor struct {
	client *qmp.Client
	dial   vmm.Dialer
	events chan vmm.Event
	cancel context.CancelFunc
	done   chan struct{} // closed when the pump has ended

	// agent is held while the guest agent is spoken to: it has one channel.
	agent chan struct{}

	balloon balloon
}

const (
	// maxMonitorReply bounds a message to the agent, in bytes: the largest that it asks
	// for are the counters of some dozens of disks, of 1.5 KiB each, and vCPUs by the
	// hundred, of 0.2 KiB.
	maxMonitorReply = 512 << 10
	// maxMonitorValues bounds the values in one from a pod.
	maxMonitorValues = 32 << 10
	// maxMonitorEvents bounds what waits for the agent, in bytes: some hundred events.
	maxMonitorEvents = 64 << 10
)

// Connect opens the agent's monitor. While it reads large messages the memory that they
// take, in bytes, is in room; nil: the VM is trusted, or alone.
func Connect(ctx context.Context, dial vmm.Dialer, room *semaphore.Weighted) (vmm.Monitor, error) {
	conn, err := dial(ctx, wire.AgentMonitor)
	if err != nil {
		return nil, fmt.Errorf("connecting to QEMU's monitor %s: %w", wire.AgentMonitor, err)
	}
	options := []qmp.Option{qmp.WithMaxMessageSize(maxMonitorReply), qmp.WithEventBytes(maxMonitorEvents), qmp.WithPatience(qmp.CallTime)}
	if room != nil {
		options = append(options, qmp.WithRoom(room, maxMonitorValues))
	}
	client, err := qmp.New(ctx, conn, options...)
	if err != nil {
		return nil, fmt.Errorf("QEMU's monitor %s: %w", wire.AgentMonitor, err)
	}
	pumping, cancel := context.WithCancel(context.Background())
	m := &monitor{
		client: client, dial: dial, cancel: cancel,
		events: make(chan vmm.Event), done: make(chan struct{}), agent: make(chan struct{}, 1),
	}
	go m.pump(pumping, client.Subscribe())
	return m, nil
}

// Events returns the channel of events. It is unbuffered: those that nobody takes
// wait in the subscription's bounded queue.
func (m *monitor) Events() <-chan vmm.Event { return m.events }

// Err says why there are no more events; nil: there are.
func (m *monitor) Err() error { return m.client.Err() }

// Close ends the connection; the VM is not touched.
func (m *monitor) Close() error {
	m.cancel()
	err := m.client.Close()
	<-m.done
	return err
}

func (m *monitor) pump(ctx context.Context, s *qmp.Subscription) {
	defer close(m.done)
	defer close(m.events)
	defer s.Close()
	dropped := 0
	for {
		event, err := s.Next(ctx)
		var missed *qmp.MissedError
		if errors.As(err, &missed) {
			dropped += int(min(missed.Dropped, 1<<30))
			continue
		}
		if err != nil {
			return
		}
		// The shim's business, which tries several ways: one that failed is no
		// news of the VM. That others were dropped before it is: there may be no more.
		if dropped == 0 && (event.Name == "MIGRATION" || event.Name == "MIGRATION_PASS") {
			continue
		}
		out := vmm.Event{Time: event.Timestamp, Name: event.Name, Data: event.Data, Change: change(event), Dropped: dropped}
		dropped = 0
		if out.Time.IsZero() {
			out.Time = time.Now()
		}
		select {
		case m.events <- out:
		case <-ctx.Done():
			return
		}
	}
}

// change says what an event means to an agent.
func change(e qmp.Event) vmm.Change {
	switch e.Name {
	case "STOP":
		return vmm.ChangePaused
	case "RESUME":
		return vmm.ChangeResumed
	case "RESET":
		return vmm.ChangeReset
	case "GUEST_PANICKED":
		return vmm.ChangePanicked
	case "VSERPORT_CHANGE":
		return portChange(e.Data)
	}
	return vmm.ChangeNone
}

func portChange(data json.RawMessage) vmm.Change {
	var port struct {
		ID   string `json:"id"`
		Open bool   `json:"open"`
	}
	switch err := json.Unmarshal(data, &port); {
	case err != nil || port.ID != wire.GuestAgentPort:
		return vmm.ChangeNone
	case port.Open:
		return vmm.ChangeAgentConnected
	}
	return vmm.ChangeAgentDisconnected
}

// Status asks what state QEMU is in.
func (m *monitor) Status(ctx context.Context) (vmm.Status, error) {
	var reply struct {
		Running bool   `json:"running"`
		Status  string `json:"status"`
	}
	if err := m.client.Execute(ctx, "query-status", nil, &reply); err != nil {
		return vmm.Status{}, err
	}
	status := vmm.Status{Running: reply.Running, Panicked: reply.Status == "guest-panicked", Detail: reply.Status, IOError: reply.Status == "io-error",
		Asked: reply.Status == "paused" || reply.Status == "prelaunch"}
	if status.IOError {
		status.DiskErrors = m.diskErrors(ctx)
	}
	return status, nil
}

// diskErrors asks which disks stopped the guest (BlockDeviceIoStatus in
// qapi/block-core.json). That it is unknown is no reason not to tell the rest.
func (m *monitor) diskErrors(ctx context.Context) []vmm.DiskError {
	var devices []blockDevice
	if err := m.client.Execute(ctx, "query-block", nil, &devices); err != nil {
		return nil
	}
	return failed(devices)
}

type blockDevice struct {
	// Device that the guest has of it, by its path or id.
	Device string `json:"qdev"`
	Status string `json:"io-status"`
}

// failed are the specification's disks among them that had an error, each once.
func failed(devices []blockDevice) []vmm.DiskError {
	var out []vmm.DiskError
	for _, d := range devices {
		index, ok := diskIndex(d.Device)
		known := func(e vmm.DiskError) bool { return e.Index == index }
		if !ok || index >= maxDisks || d.Status == "" || d.Status == "ok" || slices.ContainsFunc(out, known) {
			continue
		}
		out = append(out, vmm.DiskError{Index: index, NoSpace: d.Status == "nospace"})
	}
	return out
}

// Pause stops the vCPUs. Pausing a VM that is paused changes nothing.
func (m *monitor) Pause(ctx context.Context) error {
	if err := m.client.Execute(ctx, "stop", nil, nil); err != nil {
		return err
	}
	status, err := m.Status(ctx)
	if err == nil && status.Running {
		err = &StateError{Action: "pause", State: status.Detail, Remedy: "something let it go on at the same time: try again"}
	}
	return err
}

// Resume lets the vCPUs run. Resuming a VM that runs changes nothing. It is a
// *StateError where QEMU says yes and does nothing.
func (m *monitor) Resume(ctx context.Context) error {
	before, err := m.Status(ctx)
	if err != nil || before.Running {
		return err
	}
	if remedy := standstill(before.Detail); remedy != "" {
		return &StateError{Action: "resume", State: before.Detail, Remedy: remedy}
	}
	if err := m.client.Execute(ctx, "cont", nil, nil); err != nil {
		return err
	}
	after, err := m.Status(ctx)
	switch {
	case err != nil || after.Running:
	case after.IOError:
		err = &StateError{Action: "resume", State: after.Detail, Remedy: "a disk still can't be read or written: make room in its storage, or mend it"}
	default:
		err = &StateError{Action: "resume", State: after.Detail, Remedy: "it stopped again at once: its log says more"}
	}
	return err
}

// standstill says what to do about a state that cont does not end, or must not;
// empty: cont ends it.
func standstill(state string) string {
	switch state {
	case "inmigrate":
		return "it is still being restored, or its image could not be loaded"
	case "finish-migrate":
		return "it is being saved: wait for the end"
	case "internal-error":
		return "the hypervisor gave up on it: reset or kill it"
	case "shutdown":
		return "the guest has shut down: reset it, or stop and start it"
	case "guest-panicked":
		return "the guest has panicked: reset it, or stop and start it"
	}
	return ""
}

// Reset is the reset button: the guest starts again, without being asked.
func (m *monitor) Reset(ctx context.Context) error {
	return m.client.Execute(ctx, "system_reset", nil, nil)
}
