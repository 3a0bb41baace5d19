package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/qga"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

var _ control.Rebooter = (*machine)(nil)

const (
	// offWithin is how long a guest may take to shut down so that it is reset: then its
	// next shutdown ends the VM again.
	offWithin = 5 * time.Minute
	// rebootCall bounds a call to QEMU about a reboot.
	rebootCall = 10 * time.Second
	// rebootAgain is how long the driver waits before it tries again to have the guest's next
	// shutdown end the VM.
	rebootAgain = 10 * time.Second
)

// rebooting is a guest that is reset when it has shut down.
type rebooting struct {
	mu sync.Mutex
	// over fires when it has had its time; nil: its shutdown ends the VM.
	over *time.Timer
	// resetting: it has shut down, and is being reset.
	resetting bool
}

// Reboot implements control.Rebooter.
func (m *machine) Reboot(ctx context.Context, button bool) error {
	err := m.withAgent(ctx, func(agent *qga.Client) error { return agent.Reboot(ctx) })
	if err == nil {
		return nil
	}
	if !button {
		return &shim.Error{Code: shim.CodePrecondition, Message: fmt.Sprintf("the guest can't be asked to reboot: it has no ACPI, and %v", err)}
	}
	return m.pressToReboot()
}

// pressToReboot has QEMU stay, stopped, when the guest has shut down.
func (m *machine) pressToReboot() error {
	ctx, cancel := context.WithTimeout(context.Background(), rebootCall)
	defer cancel()
	m.reboot.mu.Lock()
	defer m.reboot.mu.Unlock()
	if m.reboot.over == nil {
		if err := m.onShutdown(ctx, "pause"); err != nil {
			return err
		}
		m.reboot.over = time.AfterFunc(offWithin, func() {
			ctx, cancel := context.WithTimeout(context.Background(), rebootCall)
			defer cancel()
			_ = m.noReboot(ctx) // endReboot has it tried again
		})
	}
	return m.execute(ctx, "system_powerdown", nil, nil)
}

// onShutdown says what QEMU does when the guest has shut down.
func (m *machine) onShutdown(ctx context.Context, action string) error {
	return m.execute(ctx, "set-action", map[string]string{"shutdown": action}, nil)
}

// noReboot has a shutdown end the VM again, also one that has just been: QEMU stands by for
// a reset that nobody makes any more.
func (m *machine) noReboot(ctx context.Context) error {
	if err := m.endReboot(ctx); err != nil {
		return err
	}
	m.reboot.mu.Lock()
	resetting := m.reboot.resetting
	m.reboot.mu.Unlock()
	if resetting {
		return nil
	}
	s, err := m.status(ctx)
	if err == nil && s.Status == "shutdown" {
		err = m.Quit(ctx)
	}
	return err
}

// endReboot has a shutdown end the VM again. If it fails it is tried again later.
func (m *machine) endReboot(ctx context.Context) error {
	m.reboot.mu.Lock()
	defer m.reboot.mu.Unlock()
	if m.reboot.over == nil {
		return nil
	}
	if err := m.onShutdown(ctx, "poweroff"); err != nil {
		if !errors.Is(err, control.ErrMonitorClosed) {
			m.reboot.over.Reset(rebootAgain)
		}
		return err
	}
	m.reboot.over.Stop()
	m.reboot.over = nil
	return nil
}

// reboots tells whether the event is the shutdown of a guest that reboots. Then it is reset:
// beside the reader of events, which must not wait for an answer.
func (m *machine) reboots(event qmp.Event) bool {
	var data struct {
		Reason string `json:"reason"`
	}
	if event.Name != "SHUTDOWN" || json.Unmarshal(event.Data, &data) != nil || data.Reason != "guest-shutdown" {
		return false
	}
	m.reboot.mu.Lock()
	defer m.reboot.mu.Unlock()
	if m.reboot.over == nil {
		return false
	}
	m.reboot.resetting = true
	go m.resetAfterShutdown()
	return true
}

func (m *machine) resetAfterShutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), rebootCall)
	defer cancel()
	err := m.execute(ctx, "system_reset", nil, nil)
	if err == nil {
		err = m.endReboot(ctx)
	}
	if err == nil {
		err = m.execute(ctx, "cont", nil, nil)
	}
	if err != nil { // it is off, and would be for ever
		_ = m.Quit(ctx)
	}
	m.reboot.mu.Lock()
	defer m.reboot.mu.Unlock()
	m.reboot.resetting = false
}
