package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

var _ vmm.Resizer = (*monitor)(nil)

// Size asks for the VM's configuration, which has the vCPUs that were last asked for.
func (m *monitor) Size(ctx context.Context) (vmm.Size, error) {
	info, err := m.info(ctx)
	if err != nil {
		return vmm.Size{}, err
	}
	var size vmm.Size
	if info.Config.CPUs != nil {
		size.VCPUs = int(info.Config.CPUs.Boot)
	}
	if info.Config.Balloon != nil {
		size.Memory = known(info.MemoryActual)
	}
	return size, nil
}

// leavingPace is between two looks at vCPUs that are to leave: no event tells.
const leavingPace = 100 * time.Millisecond

// SetVCPUs implements vmm.Resizer. While vCPUs are leaving the VMM refuses to be
// asked for any number but those that are still there (CpuManager::resize in
// vmm/src/cpu.rs): so it is asked again until it says yes.
func (m *monitor) SetVCPUs(ctx context.Context, vcpus int) error {
	before, err := m.Size(ctx)
	if err != nil {
		return err
	}
	pace := time.NewTicker(leavingPace)
	defer pace.Stop()
	for asked := false; ; {
		err := m.resize(ctx, uint32(vcpus))
		switch {
		case err == nil && (asked || vcpus >= before.VCPUs):
			return nil
		case err == nil:
			asked = true
		case !errors.Is(err, chapi.ErrBusy) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", vmm.ErrGuestKeeps, err), m.keepVCPUs(ctx, before.VCPUs))
		}
	}
}

// keepVCPUs has the configuration say how many the guest has, after a guest that has not let any
// go: the VMM takes it for the VM's in a snapshot.
func (m *monitor) keepVCPUs(ctx context.Context, vcpus int) error {
	err := m.resize(context.WithoutCancel(ctx), uint32(vcpus))
	if errors.Is(err, chapi.ErrBusy) {
		return nil // some have left
	}
	return err
}

func (m *monitor) resize(ctx context.Context, vcpus uint32) error {
	return m.short(ctx, func(ctx context.Context) error { return m.client.Resize(ctx, chapi.Resize{VCPUs: &vcpus}) })
}

// SetMemory implements vmm.Resizer: it tells the balloon what to take.
func (m *monitor) SetMemory(ctx context.Context, bytes uint64) error {
	info, err := m.info(ctx)
	if err != nil {
		return err
	}
	var all uint64
	if memory := info.Config.Memory; memory != nil {
		all = memory.Size
		for _, zone := range memory.Zones {
			all += zone.Size
		}
	}
	if bytes > all {
		return fmt.Errorf("cloud-hypervisor says that the VM has %d bytes of memory: it can't have %d", all, bytes)
	}
	taken := all - bytes
	return m.short(ctx, func(ctx context.Context) error { return m.client.Resize(ctx, chapi.Resize{Balloon: &taken}) })
}
