package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
	"github.com/vmlet/vmlet/vmm/shim/server"
)

// machine is one cloud-hypervisor.
type machine struct {
	link server.Link
	vm   *chvm.VM
	api  *chapi.Client
	hub  *hub
	taps []tap

	ended chan struct{} // closed when there are no more events

	mu     sync.Mutex
	ending server.Ending
	// told: it was told from here to end.
	told bool
	// snapshot is the name of the folder, in the VMM's own, of a VM that was taken
	// away for its disks' sake when it was saved; empty: it is there.
	snapshot string
}

// tap is an interface's, kept for when the VM is made anew.
type tap struct {
	id   string
	file *os.File
}

// Stop implements server.Machine. cloud-hypervisor's pause waits for what its disks
// have under way.
func (m *machine) Stop(ctx context.Context) (bool, error) {
	if m.away() {
		return false, nil
	}
	before, err := m.api.Info(ctx)
	if err != nil || before.State != chapi.StateRunning {
		return false, wrap(err)
	}
	if err := m.api.Pause(ctx); err != nil {
		// Another client may have been first.
		if after, infoErr := m.api.Info(ctx); infoErr == nil && after.State == chapi.StatePaused {
			return true, nil
		}
		return true, wrap(err)
	}
	return true, nil
}

// Continue implements server.Machine: it boots a VM that has only been created. After
// a boot that has failed the VM is taken away: cloud-hypervisor has dropped all disks
// from its configuration then if one of them was the cause, and would boot without.
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
		if err = m.api.Boot(ctx); err != nil {
			err = errors.Join(err, m.api.Delete(context.WithoutCancel(ctx)))
		}
	case chapi.StatePaused:
		err = m.api.Resume(ctx)
	default:
		return fmt.Errorf("cloud-hypervisor is in state %q, from which it can't go on", before.State)
	}
	if err != nil {
		if after, infoErr := m.api.Info(ctx); infoErr == nil && after.State == chapi.StateRunning {
			return nil // another client was first
		}
	}
	return wrap(err)
}

// PowerDown implements server.Machine.
func (m *machine) PowerDown(ctx context.Context) error { return wrap(m.api.PowerButton(ctx)) }

// Quit implements server.Machine.
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

// Ending implements server.Machine.
func (m *machine) Ending(ctx context.Context) server.Ending {
	select {
	case <-m.ended:
	case <-ctx.Done():
		return server.Ending{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending
}

// Close implements server.Machine.
func (m *machine) Close() error {
	var errs []error
	if m.hub != nil {
		errs = append(errs, m.hub.close())
	}
	for _, t := range m.taps {
		errs = append(errs, t.file.Close())
	}
	// Also wakes the reader of events.
	m.link.Events.Close()
	return errors.Join(errs...)
}
