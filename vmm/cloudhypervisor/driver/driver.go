// Package driver is cloud-hypervisor as the shim sees it: what creates, boots,
// stops, saves, loads and ends a VM, over its REST API.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

const (
	// callTime bounds a call that takes no time to speak of.
	callTime = time.Minute
	// longest bounds one that writes or reads the whole RAM of a large VM.
	longest = time.Hour
)

// CloudHypervisor is the driver; it has no state.
type CloudHypervisor struct{}

var _ control.Driver = CloudHypervisor{}

// Connect creates the VM, or, where an image is to be loaded, sees that the VMM is
// there to do so. Nothing is booted.
func (CloudHypervisor) Connect(ctx context.Context, link control.Link) (control.Machine, error) {
	vm := new(wire.VM)
	if err := json.Unmarshal(link.Plan.Instructions, vm); err != nil {
		return nil, fmt.Errorf("the plan's instructions for cloud-hypervisor: %w", err)
	}
	if link.Folder == nil || link.Events == nil {
		return nil, errors.New("the plan has no folder for cloud-hypervisor, or no pipe for its events")
	}
	buffer(vm.Config.Disks, link.Buffered)
	pin(&vm.Config, link.VCPUs)
	dial := func(ctx context.Context) (net.Conn, error) { return link.Dial(ctx, wire.APISocket) }
	m := &machine{
		link: link, vm: vm, ended: make(chan struct{}),
		api: chapi.New(dial, chapi.WithTimeout(callTime)), slow: chapi.New(dial, chapi.WithTimeout(longest)),
	}
	if err := m.begin(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// buffer takes direct I/O from disks whose filesystems don't have it.
func buffer(disks []chapi.Disk, files []int) {
	for i := range disks {
		disks[i].Direct = disks[i].Direct && !slices.ContainsFunc(files, func(file int) bool {
			return disks[i].Path == fmt.Sprintf("/proc/self/fd/%d", plan.FirstFile+file)
		})
	}
}

// pin gives each vCPU's thread its CPU.
func pin(config *chapi.VMConfig, cpus []int) {
	for vcpu, cpu := range cpus {
		config.CPUs.Affinity = append(config.CPUs.Affinity, chapi.CPUAffinity{VCPU: uint32(vcpu), CPUs: []int{cpu}})
	}
}

// VCPUThreads implements control.VCPUThreader: cloud-hypervisor makes them when the VM is booted or restored.
func (m *machine) VCPUThreads(context.Context) ([]int, error) { return nil, nil }

func (m *machine) begin(ctx context.Context) (err error) {
	if err := m.takeTaps(); err != nil {
		return err
	}
	listener, err := m.link.Listen(wire.EventsSocket)
	if err != nil {
		return err
	}
	m.hub = newHub(listener)
	go m.follow()
	if m.link.Plan.Restore != nil {
		_, err := m.api.Ping(ctx)
		return wrap(err)
	}
	return m.create(ctx)
}

// takeTaps keeps the taps: an interface is made again with its tap when the VM is.
func (m *machine) takeTaps() error {
	for i := range m.vm.Add {
		add := &m.vm.Add[i]
		if !within(add, m.link.Received) {
			return fmt.Errorf("interface %s has %d received descriptors from %d on as its tap, and %d came with the plan", add.Net.ID, add.Taps(), add.Tap, len(m.link.Received))
		}
		kept, err := keepTap(add, m.link.Received)
		if err != nil {
			return err
		}
		m.taps = append(m.taps, kept)
	}
	return nil
}

func (m *machine) create(ctx context.Context) error {
	if err := m.api.Create(ctx, &m.vm.Config); err != nil {
		return wrap(err)
	}
	faultpoint.Reach("cloud-hypervisor.launch.created")
	for i, add := range m.vm.Add {
		if _, err := m.api.AddNet(ctx, add.Net, m.taps[i].files...); err != nil {
			return wrap(err)
		}
	}
	for _, device := range m.vm.Devices {
		if _, err := m.api.AddDevice(ctx, device); err != nil {
			return wrap(err)
		}
	}
	return nil
}

// wrap tells the shim of a VMM that has gone in its own words.
func wrap(err error) error {
	if errors.Is(err, chapi.ErrDisconnected) {
		return fmt.Errorf("%w: %w", control.ErrMonitorClosed, err)
	}
	return err
}
