package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qga"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// agentTimeout is how long a guest agent may take to answer: it may have been
// swapped out, or be waiting for a clock device. The caller's context may be
// shorter.
const agentTimeout = 5 * time.Second

// SetGuestTime sets the guest's system clock and its RTC.
func (m *monitor) SetGuestTime(ctx context.Context, now time.Time) error {
	begun := time.Now()
	return m.withAgent(ctx, func(ctx context.Context, agent *qga.Client) error {
		// The agent may have kept us waiting.
		return agent.SetTime(ctx, now.Add(time.Since(begun)))
	})
}

// AskGuest asks the guest's agent about the guest.
func (m *monitor) AskGuest(ctx context.Context) (g vmm.Guest, err error) {
	err = m.withOpenPort(ctx, func(ctx context.Context, agent *qga.Client) error {
		g, _, err = guestOf(ctx, agent)
		return err
	})
	return g, err
}

// InspectGuest asks it for all that it knows.
func (m *monitor) InspectGuest(ctx context.Context) (d vmm.GuestDetails, err error) {
	err = m.withOpenPort(ctx, func(ctx context.Context, agent *qga.Client) error {
		d, err = detailsOf(ctx, agent)
		return err
	})
	return d, err
}

// suspendDisk is the agent's command; the agent's answer may take suspendTime in all.
const (
	suspendDisk = "guest-suspend-disk"
	suspendTime = 25 * time.Second
)

// SuspendGuest implements vmm.GuestSuspender.
func (m *monitor) SuspendGuest(ctx context.Context) error {
	return m.withOpenPortFor(ctx, suspendTime, suspend)
}

// suspend asks only an agent that has the command: another's refusal says little.
func suspend(ctx context.Context, agent *qga.Client) error {
	var info guestInfo
	if err := agent.Ask(ctx, "guest-info", nil, &info); err != nil {
		return err
	}
	can := slices.ContainsFunc(info.Commands, func(c guestCommand) bool { return c.Name == suspendDisk && c.Enabled })
	if !can {
		return fmt.Errorf("%w suspend itself to disk: its agent %s lacks %s, or does not allow it", vmm.ErrGuestCannot, clip(info.Version), suspendDisk)
	}
	err := agent.SuspendDisk(ctx)
	if refused := new(qga.Error); errors.As(err, &refused) {
		return fmt.Errorf("%w suspend itself to disk: %w", vmm.ErrGuestCannot, err)
	}
	return err
}

// withOpenPort is withAgent, but nobody waits for an agent that is not there: the guest has
// not opened its port.
func (m *monitor) withOpenPort(ctx context.Context, speak func(context.Context, *qga.Client) error) error {
	return m.withOpenPortFor(ctx, agentTimeout, speak)
}

func (m *monitor) withOpenPortFor(ctx context.Context, within time.Duration, speak func(context.Context, *qga.Client) error) error {
	var ports []struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	if err := m.client.Execute(ctx, "query-chardev", nil, &ports); err != nil {
		return err
	}
	for _, p := range ports {
		if p.Label == wire.GuestAgentChardev && p.Open {
			return m.withAgentFor(ctx, within, speak)
		}
	}
	return fmt.Errorf("%w: it has not opened its port", vmm.ErrNoGuestAgent)
}

// withAgent speaks to the guest's agent, for as long as it may take to answer.
func (m *monitor) withAgent(ctx context.Context, speak func(context.Context, *qga.Client) error) error {
	return m.withAgentFor(ctx, agentTimeout, speak)
}

func (m *monitor) withAgentFor(ctx context.Context, within time.Duration, speak func(context.Context, *qga.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case m.agent <- struct{}{}:
		defer func() { <-m.agent }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another call to it takes too long: %w", vmm.ErrNoGuestAgent, ctx.Err())
	}
	conn, err := m.dial(ctx, wire.GuestAgent)
	if err != nil {
		return fmt.Errorf("%w: %w", vmm.ErrNoGuestAgent, err)
	}
	agent, err := qga.New(ctx, conn)
	if err != nil {
		return fmt.Errorf("%w: %w", vmm.ErrNoGuestAgent, err)
	}
	defer agent.Close()
	return speak(ctx, agent)
}
