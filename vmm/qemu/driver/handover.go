package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

var (
	_ control.Sender   = (*machine)(nil)
	_ control.Receiver = (*machine)(nil)
)

// handoverCapabilities are the same at both ends, or the end that loads gives up.
//
//   - return-path: without it, the sender says "completed" also of a guest that could not be loaded.
//   - pause-before-switchover: the sender waits when the guest is stopped.
//   - validate-uuid: a guest is not loaded in the place of another one.
//   - late-block-activate: the receiver opens its disks for writing when it goes on, not when it has loaded.
func handoverCapabilities() []string {
	return []string{"return-path", "pause-before-switchover", "validate-uuid", "late-block-activate"}
}

// maxDowntime lets QEMU stop the guest as soon as it would be stopped for no longer, in milliseconds.
const maxDowntime = 300

// configureHandover sets them. Both are off again for a save: see configure.
func (m *machine) configureHandover(ctx context.Context, sharedRAM bool) error {
	m.handedOver.Store(true)
	return m.execute(ctx, "migrate-set-capabilities", object{"capabilities": capabilities(true, sharedRAM, handoverCapabilities())}, nil)
}

// Send implements control.Sender.
func (m *machine) Send(ctx context.Context, h control.Handover, stopped func() error) error {
	if err := m.sendable(ctx); err != nil {
		return err
	}
	if err := m.configureHandover(ctx, h.SharedRAM); err != nil {
		return err
	}
	if err := m.execute(ctx, "migrate-set-parameters", object{"max-bandwidth": int64(maxBandwidth), "downtime-limit": maxDowntime}, nil); err != nil {
		return err
	}
	faultpoint.Reach("qemu.send.configured")
	if err := m.send(ctx, h, stopped); err != nil {
		return errors.Join(err, m.goOnHere(ctx))
	}
	m.saved.Store(true) // its disks are given up
	return m.finalized(ctx)
}

// sendable refuses what would be lost on the way.
func (m *machine) sendable(ctx context.Context) error {
	m.reboot.mu.Lock()
	rebooting := m.reboot.over != nil || m.reboot.resetting
	m.reboot.mu.Unlock()
	if rebooting {
		return errors.New("the guest is about to reboot: try again when it has")
	}
	s, err := m.status(ctx)
	if err == nil && !s.Running {
		err = fmt.Errorf("the guest does not run: QEMU is %q", s.Status)
	}
	return err
}

func (m *machine) send(ctx context.Context, h control.Handover, stopped func() error) error {
	events := m.qmp.Subscribe("MIGRATION")
	defer events.Close()
	if err := m.qmp.ExecuteWithFiles(ctx, "getfd", object{"fdname": stateName}, nil, h.Stream); err != nil {
		return wrap(err)
	}
	err := m.execute(ctx, "migrate", object{"uri": "fd:" + stateName}, nil)
	switch {
	case refused(err): // nothing has begun
		return m.cleanUp(ctx, err, "closefd", object{"fdname": stateName})
	case err == nil:
		err = m.switchOver(ctx, events, stopped)
	}
	if err != nil && !errors.Is(err, control.ErrMonitorClosed) {
		return m.cancel(ctx, "migrate", events, err)
	}
	return err
}

// switchOver waits until the guest is stopped, and then until the other end has it.
func (m *machine) switchOver(ctx context.Context, events *qmp.Subscription, stopped func() error) error {
	if err := m.await(ctx, events, "pre-switchover"); err != nil {
		return err
	}
	if err := stopped(); err != nil {
		return err
	}
	faultpoint.Reach("qemu.send.stopped")
	if err := m.execute(ctx, "migrate-continue", object{"state": "pre-switchover"}, nil); err != nil {
		return err
	}
	return m.await(ctx, events, "completed")
}

// goOnHere has the guest go on after a handover that failed, whatever has become of ctx.
func (m *machine) goOnHere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalizing)
	defer cancel()
	if err := m.finalized(ctx); err != nil {
		return err
	}
	return m.Continue(ctx)
}

// Receive implements control.Receiver.
func (m *machine) Receive(ctx context.Context, h control.Handover) error {
	if err := m.configureHandover(ctx, h.SharedRAM); err != nil {
		return err
	}
	faultpoint.Reach("qemu.receive.configured")
	err := m.byDescriptor(ctx, h.Stream, "migrate-incoming", object{"exit-on-error": false})
	if refused(err) { // as by LoadState
		err = m.byDescriptor(ctx, h.Stream, "migrate-incoming", nil)
	}
	return err
}

// Begin implements control.Receiver. QEMU refuses cont before it lets a vCPU run (qmp_cont in its monitor/qmp-cmds.c).
func (m *machine) Begin(ctx context.Context) error {
	s, err := m.status(ctx)
	if err == nil && s.Status != "paused" {
		err = fmt.Errorf("QEMU is %q, and not ready to go on", s.Status)
	}
	if err == nil {
		err = m.execute(ctx, "cont", nil, nil)
		if err != nil && !refused(err) {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrNotBegun, err)
	}
	return nil
}
