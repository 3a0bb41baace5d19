package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/vmlet/vmlet/vmm"
)

// Connect opens the agent's socket.
func (*microVM) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	q, err := dialQMP(ctx, dial, agentSocket)
	if err != nil {
		return nil, err
	}
	m := &monitor{qmp: q, events: make(chan vmm.Event)}
	go m.follow()
	return m, nil
}

type monitor struct {
	qmp    *qmp
	events chan vmm.Event
}

func guestDid(data json.RawMessage) bool {
	var d struct {
		Guest bool `json:"guest"`
	}
	return json.Unmarshal(data, &d) == nil && d.Guest
}

func (m *monitor) follow() {
	defer close(m.events)
	change := map[string]vmm.Change{"STOP": vmm.ChangePaused, "RESUME": vmm.ChangeResumed, "RESET": vmm.ChangeReset, "GUEST_PANICKED": vmm.ChangePanicked}
	for e := range m.qmp.events {
		m.events <- vmm.Event{Time: time.Now(), Name: e.Event, Data: e.Data, Change: change[e.Event]}
	}
}

func (m *monitor) Status(ctx context.Context) (vmm.Status, error) {
	s, err := m.qmp.state(ctx)
	return vmm.Status{Running: s.Running, Panicked: s.Status == "guest-panicked", Asked: s.Status == "paused", Detail: s.Status}, err
}

func (m *monitor) Pause(ctx context.Context) error  { return m.qmp.do(ctx, "stop", nil, nil) }
func (m *monitor) Resume(ctx context.Context) error { return m.qmp.do(ctx, "cont", nil, nil) }
func (m *monitor) Reset(ctx context.Context) error {
	return m.qmp.do(ctx, "system_reset", nil, nil)
}

// SetGuestTime: there is no agent in the guest.
func (m *monitor) SetGuestTime(context.Context, time.Time) error { return vmm.ErrNoGuestAgent }

func (m *monitor) Events() <-chan vmm.Event { return m.events }
func (m *monitor) Close() error             { return m.qmp.conn.Close() }
