package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// machine is one cloud-hypervisor.
type machine struct {
	link control.Link
	vm   *wire.VM
	// api is for calls that take no time to speak of; slow for those that wait for
	// disks, or that read or write RAM.
	api, slow *chapi.Client
	hub       *hub
	taps      []tap
	leaving   leavers

	ended chan struct{} // closed when there are no more events

	mu sync.Mutex
	// told: it got the order to end from here.
	told bool
	// deleted: the VMM said so of the VM, and of none since.
	deleted bool
	gone    *gone // nil: the VM is there
}

// tap is an interface's, one file for each pair of queues, kept for when the VM is made again.
type tap struct {
	id    string
	files []*os.File
}

// keepTap duplicates an interface's tap out of what came with a plan or an attachment, in which
// the planner has counted it.
func keepTap(add *wire.AddNet, among []*os.File) (t tap, err error) {
	t.id = add.Net.ID
	for i := range add.Taps() {
		file, err := duplicate(among[add.Tap+i])
		if err != nil {
			return t, errors.Join(err, t.close())
		}
		t.files = append(t.files, file)
	}
	return t, nil
}

// within: there are as many files as the interface's tap wants.
func within(add *wire.AddNet, among []*os.File) bool {
	return add.Tap >= 0 && add.Tap < len(among) && add.Taps() <= len(among)-add.Tap
}

func (t tap) close() error {
	var errs []error
	for _, file := range t.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Stop implements control.Machine. From v53 on, cloud-hypervisor's pause waits for what
// its disks have under way; VMs of older versions are not saved.
func (m *machine) Stop(ctx context.Context) (bool, error) {
	if m.away() != nil {
		return false, nil
	}
	before, err := m.api.Info(ctx)
	if err != nil || before.State != chapi.StateRunning {
		return false, wrap(err)
	}
	if err := m.slow.Pause(ctx); err != nil {
		// Another client may have been first.
		if after, infoErr := m.api.Info(ctx); infoErr == nil && after.State == chapi.StatePaused {
			return true, nil
		}
		return true, wrap(err)
	}
	return true, nil
}

// Continue implements control.Machine: it boots a VM that has only been created.
func (m *machine) Continue(ctx context.Context) error {
	if err := m.Regain(ctx); err != nil {
		return err
	}
	before, err := m.api.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	switch before.State {
	case chapi.StateRunning:
		return nil
	case chapi.StateCreated:
		err = m.boot(ctx)
	case chapi.StatePaused:
		err = m.api.Resume(ctx)
	default:
		return fmt.Errorf("cloud-hypervisor is in state %.40q, from which it can't go on", before.State)
	}
	if err != nil {
		if after, infoErr := m.api.Info(ctx); infoErr == nil && after.State == chapi.StateRunning {
			return nil // another client was first
		}
	}
	return wrap(err)
}

// boot is for a VM that was never booted, not even by a reset: after a boot that
// has failed over one disk cloud-hypervisor has dropped all of them from its
// configuration, and would boot without. So it is taken away then.
func (m *machine) boot(ctx context.Context) error {
	if m.hub.now().BootTried {
		return errors.New("the guest's boot or reset has failed, and it can't be booted again: kill the VM, and start it")
	}
	err := m.slow.Boot(ctx)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	return errors.Join(m.explain(err), m.api.Delete(ctx))
}

// PowerDown implements control.Machine.
func (m *machine) PowerDown(ctx context.Context) error { return wrap(m.api.PowerButton(ctx)) }

// Quit implements control.Machine.
func (m *machine) Quit(ctx context.Context) error {
	m.mu.Lock()
	m.told = true
	m.mu.Unlock()
	err := m.api.ShutdownVMM(ctx)
	if errors.Is(err, chapi.ErrDisconnected) {
		return nil // it may be gone before it has answered
	}
	return err
}

// Ending implements control.Machine. What the last events say of how it ended is not
// gone by: the VMM doesn't wait until they are written, and says the same of a guest
// that has powered off and of a VM that was taken away.
func (m *machine) Ending(ctx context.Context) control.Ending {
	select {
	case <-m.ended:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return control.Ending{Panicked: m.hub.now().Panicked, Told: m.told, Shutdown: !m.told, Closed: m.deleted && m.gone == nil}
}

// Close implements control.Machine.
func (m *machine) Close() error {
	var errs []error
	if m.hub != nil {
		errs = append(errs, m.hub.close())
	}
	for _, t := range m.taps {
		errs = append(errs, t.close())
	}
	// Also wakes the reader of events.
	m.link.Events.Close()
	return errors.Join(errs...)
}
