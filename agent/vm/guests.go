package vm

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
)

// freezeDefault is how long a guest is frozen at most if the caller sets no limit.
const freezeDefault = 5 * time.Minute

// Guests reaches into guests that run: their consoles and displays, their agents, their networks.
type Guests struct {
	vms   *Registry
	tasks *background
	// asked bounds how many guests' agents are asked at a time.
	asked *semaphore.Weighted
}

// reach returns a VM in a state in which it can be asked this, and what runs of it. Nothing
// else has to wait for it, nor it for anything.
func (g *Guests) reach(ctx context.Context, name string, op lifecycle.Operation) (*VM, *live, error) {
	m, err := g.vms.Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if _, err := m.check(op); err != nil {
		return nil, nil, err
	}
	l := m.running()
	if l == nil {
		return nil, nil, endedMeanwhile(m)
	}
	return m, l, nil
}

// reachDisplay is reach for a VM that has a display.
func (g *Guests) reachDisplay(ctx context.Context, name string) (*live, error) {
	m, l, err := g.reach(ctx, name, lifecycle.Display)
	if err == nil && m.Snapshot().GetStatus().GetEffectiveSpec().GetDevices().GetVideo() == nil {
		err = fault.Errorf(codes.FailedPrecondition, "%s has no display: its specification has no %s", contract.ThisVM(name), contract.FieldName("devices.video"))
	}
	return l, err
}

// unanswered is what came of asking a guest, which may refuse for a known reason; nil: it answered.
func unanswered(ctx context.Context, name, doing string, err error, refusals ...error) error {
	switch {
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return fault.Errorf(codes.FailedPrecondition, "%s: %w", contract.ThisVM(name), err)
	case err != nil && ctx.Err() == nil:
		return fault.Errorf(codes.Unavailable, "%s: %s: %w", contract.ThisVM(name), doing, err)
	}
	return err
}

// Display connects to a VM's display by VNC. Its present client is cut off; with keep the error is
// ALREADY_EXISTS then.
func (g *Guests) Display(ctx context.Context, name string, keep bool) (net.Conn, error) {
	l, err := g.reachDisplay(ctx, name)
	if err != nil {
		return nil, err
	}
	conn, err := l.shim.Display(ctx, keep)
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	return conn, nil
}

// Screenshot takes a picture of a VM's display, as a PNG, which is the caller's to close. move
// moves the pointer first.
func (g *Guests) Screenshot(ctx context.Context, name string, move bool) (io.ReadCloser, error) {
	l, err := g.reachDisplay(ctx, name)
	if err != nil {
		return nil, err
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	screener, can := monitor.(vmm.Screener)
	if !can {
		return nil, fault.Errorf(codes.FailedPrecondition, "%s: its VMM takes no screenshots", contract.ThisVM(name))
	}
	picture, err := screener.Screenshot(ctx, move)
	if err := unanswered(ctx, name, "taking a screenshot", err, vmm.ErrNoDisplay); err != nil {
		return nil, err
	}
	return picture, nil
}

// Reboot asks a guest to reboot, and does not wait until it has.
func (g *Guests) Reboot(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	return g.vms.operate(ctx, name, lifecycle.Reboot, func(ctx context.Context, m *VM, _ vmm.Monitor) error {
		l := m.running()
		if l == nil {
			return endedMeanwhile(m)
		}
		features := m.Snapshot().GetStatus().GetEffectiveSpec().GetFeatures()
		button := features == nil || features.Acpi == nil || features.GetAcpi()
		return fromShim(m, l.shim.Reboot(ctx, button))
	})
}

// fromShim keeps the code of a shim's refusal.
func fromShim(m *VM, err error) error {
	if err == nil {
		return nil
	}
	return &fault.Error{Code: fault.Code(err), Err: contract.Errorf("%s: %w", contract.ThisVM(m.name), err)}
}

// Freeze has the guest's agent freeze its file systems, for timeout at most; 0: 5 minutes.
func (g *Guests) Freeze(ctx context.Context, name string, timeout time.Duration) error {
	if timeout < 0 {
		return fault.Invalid("timeout_ms", "%d is negative", timeout.Milliseconds())
	}
	if timeout == 0 {
		timeout = freezeDefault
	}
	m, l, err := g.reach(ctx, name, lifecycle.Freeze)
	if err != nil {
		return err
	}
	if err := fromShim(m, l.shim.Freeze(ctx, timeout)); err != nil {
		return err
	}
	noteFrozen(m, true)
	return nil
}

// Thaw ends a freeze.
func (g *Guests) Thaw(ctx context.Context, name string) error {
	m, l, err := g.reach(ctx, name, lifecycle.Freeze)
	if err != nil {
		return err
	}
	if err := fromShim(m, l.shim.Thaw(ctx)); err != nil {
		return err
	}
	noteFrozen(m, false)
	return nil
}

// noteFrozen is worth no write of its own, as all that the guest is asked for.
func noteFrozen(m *VM, frozen bool) {
	_ = m.Change(func(vm *nodev1.VirtualMachine) {
		if vm.Status.Guest == nil {
			vm.Status.Guest = new(nodev1.GuestStatus)
		}
		vm.Status.Guest.FsFreezeStatus = freezeStatus(frozen)
	})
}

// Inspect asks the guest's agent for all that it knows.
func (g *Guests) Inspect(ctx context.Context, name string) (*nodev1.GetGuestResponse, error) {
	_, l, err := g.reach(ctx, name, lifecycle.Inspect)
	if err != nil {
		return nil, err
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	inspector, can := monitor.(vmm.GuestInspector)
	if !can {
		return nil, fault.Errorf(codes.FailedPrecondition, "%s: its VMM has no channel to an agent in the guest", contract.ThisVM(name))
	}
	if err := g.asked.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer g.asked.Release(1)
	d, err := inspector.InspectGuest(ctx)
	if err := unanswered(ctx, name, "asking the guest", err, vmm.ErrNoGuestAgent); err != nil {
		return nil, err
	}
	return inspected(&d), nil
}

// Console connects to a VM's serial console; backlog bytes of what it has printed come
// first.
func (g *Guests) Console(ctx context.Context, name string, backlog int) (net.Conn, error) {
	_, l, err := g.reach(ctx, name, lifecycle.Console)
	if err != nil {
		return nil, err
	}
	return l.shim.Console(ctx, backlog)
}

// SetGuestTime puts the clock right of a guest that has been paused, in the background: many
// guests have no agent, and none is to wait for that.
func (g *Guests) SetGuestTime(m *VM) {
	l := m.running()
	if l == nil || m.State() != lifecycle.Running {
		return
	}
	monitor, err := l.connected()
	if err != nil {
		return
	}
	g.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(g.tasks.ctx, guestTimePatience)
		defer cancel()
		if err := monitor.SetGuestTime(ctx, time.Now()); err != nil {
			m.log.Debug("failed to set the guest's clock", "error", err)
		}
	})
}

// guestTimePatience is how long a guest's agent has to come back to its senses
// after a restore.
const guestTimePatience = 30 * time.Second

// ask is nil if there is no agent that answers.
func (g *Guests) ask(guest vmm.GuestAsker) *vmm.Guest {
	if g.asked.Acquire(g.tasks.ctx, 1) != nil {
		return nil
	}
	defer g.asked.Release(1)
	said, err := guest.AskGuest(g.tasks.ctx)
	if err != nil {
		return nil
	}
	return &said
}

// Suspend asks a guest to write its memory to its own disk and to power off. It returns when
// the guest has taken that up. If it can't after all, it goes on.
func (g *Guests) Suspend(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	m, l, err := g.reach(ctx, name, lifecycle.Suspend)
	if err != nil {
		return nil, err
	}
	cannot := func(err error) error {
		return fault.Errorf(codes.FailedPrecondition, "%s: %w", contract.ThisVM(name), err)
	}
	const save, reason = contract.Advice("save the VM instead"), contract.Reason(contract.FaultSaveInstead)
	if l.vmm == nil {
		return nil, cannot(contract.Errorf("its VMM is not known to this agent%s%s", save, reason))
	}
	if err := vmm.Suspendable(l.vmm, m.Snapshot().GetStatus().GetEffectiveSpec()); err != nil {
		return nil, cannot(err)
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	suspender, can := monitor.(vmm.GuestSuspender)
	if !can {
		return nil, cannot(contract.Errorf("its VMM has no channel to an agent in the guest%s%s", save, reason))
	}
	err = unanswered(ctx, name, "asking the guest to suspend itself to disk", suspender.SuspendGuest(ctx), vmm.ErrNoGuestAgent, vmm.ErrGuestCannot)
	if err != nil {
		return nil, err
	}
	m.log.Info("the guest is suspending itself to disk")
	return m.Snapshot(), nil
}
