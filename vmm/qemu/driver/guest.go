package driver

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/qga"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

var (
	_ control.Displayer    = (*machine)(nil)
	_ control.GuestAgent   = (*machine)(nil)
	_ control.Credentialer = (*machine)(nil)
)

// displayFD is the name by which QEMU knows a client's descriptor until it has taken it.
const displayFD = "display-client"

// AddDisplay implements control.Displayer. QEMU's VNC server listens nowhere: its clients
// are all handed over. A QEMU without one says yes, and forgets the client.
func (m *machine) AddDisplay(ctx context.Context, client *os.File) error {
	var servers []struct{}
	if err := m.execute(ctx, "query-vnc-servers", nil, &servers); err != nil {
		return err
	}
	if len(servers) == 0 {
		return &shim.Error{Code: shim.CodePrecondition, Message: "the VM has no display: QEMU was started without a VNC server"}
	}
	if err := m.qmp.ExecuteWithFiles(ctx, "getfd", map[string]string{"fdname": displayFD}, nil, client); err != nil {
		return wrap(err)
	}
	return m.execute(ctx, "add_client", map[string]any{"protocol": "vnc", "fdname": displayFD, "skipauth": true}, nil)
}

// Freeze implements control.GuestAgent.
func (m *machine) Freeze(ctx context.Context) error {
	return m.withAgent(ctx, func(agent *qga.Client) error {
		frozen, err := agent.Frozen(ctx)
		if err != nil || frozen {
			return err
		}
		return agent.Freeze(ctx)
	})
}

// Thaw implements control.GuestAgent.
func (m *machine) Thaw(ctx context.Context) error {
	return m.withAgent(ctx, func(agent *qga.Client) error { return agent.Thaw(ctx) })
}

// Ping implements control.GuestAgent. A guest that somebody has paused is as well as it was.
func (m *machine) Ping(ctx context.Context) error {
	s, err := m.status(ctx)
	if err != nil || s.Status == "paused" || s.Status == "prelaunch" {
		return err
	}
	return m.withAgent(ctx, func(agent *qga.Client) error { return agent.Ping(ctx) })
}

// SetKeys implements control.Credentialer.
func (m *machine) SetKeys(ctx context.Context, user string, keys []string) error {
	return m.withAgent(ctx, func(agent *qga.Client) error { return agent.AddKeys(ctx, user, keys, true) })
}

// SetPassword implements control.Credentialer.
func (m *machine) SetPassword(ctx context.Context, user, password string) error {
	return m.withAgent(ctx, func(agent *qga.Client) error { return agent.SetPassword(ctx, user, password) })
}

// execFirst and execLast are between two questions whether a program has ended.
const (
	execFirst = 20 * time.Millisecond
	execLast  = time.Second
)

// Exec implements control.GuestAgent. Others may speak to the agent while the program runs.
func (m *machine) Exec(ctx context.Context, command []string) (*shim.Probed, error) {
	var pid int64
	err := m.withAgent(ctx, func(agent *qga.Client) (err error) {
		pid, err = agent.Exec(ctx, command)
		return err
	})
	for wait := execFirst; err == nil; wait = min(2*wait, execLast) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the program has not ended: %w", ctx.Err())
		case <-time.After(wait):
		}
		var status qga.ExecStatus
		err = m.withAgent(ctx, func(agent *qga.Client) (err error) {
			status, err = agent.ExecStatus(ctx, pid)
			return err
		})
		if err == nil && status.Exited {
			return &shim.Probed{Code: status.Code(), Output: string(status.Output), Errors: string(status.Errors)}, nil
		}
	}
	return nil, err
}

// withAgent speaks to the guest's agent.
func (m *machine) withAgent(ctx context.Context, speak func(*qga.Client) error) error {
	select {
	case m.agent <- struct{}{}:
		defer func() { <-m.agent }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another call to it takes too long: %w", control.ErrNoGuestAgent, ctx.Err())
	}
	if err := m.checkAgent(ctx); err != nil {
		return err
	}
	conn, err := m.dial(ctx, wire.GuestAgent)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrNoGuestAgent, err)
	}
	agent, err := qga.New(ctx, conn)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrNoGuestAgent, err)
	}
	defer agent.Close()
	return speak(agent)
}

// checkAgent asks QEMU whether anybody in the guest has opened the port: no caller waits for
// an agent that is not there.
func (m *machine) checkAgent(ctx context.Context) error {
	var ports []struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	if err := m.execute(ctx, "query-chardev", nil, &ports); err != nil {
		return err
	}
	for _, p := range ports {
		if p.Label == wire.GuestAgentChardev && p.Open {
			return nil
		}
	}
	return fmt.Errorf("%w: none has opened its port", control.ErrNoGuestAgent)
}
