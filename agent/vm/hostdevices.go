package vm

import (
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/overhead"
)

// hostFacts checks what a complete specification wants of the machine: devices that
// can be handed over, and nodes for memory. It is read again, as drivers are bound
// and let go of at any time. vfio are the nodes of devices that the VMM opens as its user,
// lockedMemory is how many bytes it locks for them.
func (p *Platform) hostFacts(others []*VM, s *specv1.VirtualMachineSpec, v vmm.VMM) (vfio []string, lockedMemory uint64, err error) {
	if len(s.GetHostDevices()) == 0 && !bindsMemory(s) {
		return nil, 0, nil
	}
	host := p.node.ReadHost()
	var faults spec.FieldErrors
	hostNodes(host, s, &faults)
	if vfio = p.assign(others, host, s, &faults); len(faults) > 0 {
		return nil, 0, faults
	}
	lockedMemory, err = p.lockedMemory(s, v)
	return vfio, lockedMemory, err
}

// lockedMemory is what the VMM must be able to lock: a device of the host may reach
// any page of the guest at any time.
func (p *Platform) lockedMemory(s *specv1.VirtualMachineSpec, v vmm.VMM) (uint64, error) {
	h, known := p.node.Hypervisors.Get(s.GetHypervisor())
	adjuster, asks := hypervisor.As[hypervisor.ResourceAdjuster](h)
	devices := len(s.GetHostDevices())
	if devices == 0 || !known || !asks {
		return 0, nil
	}
	cost, err := overhead.Of(overhead.Request{Spec: s, Hypervisor: h, VMM: v, Arch: p.arch})
	if err != nil {
		return 0, err
	}
	return adjuster.AdjustResources(hypervisor.ResourceFacts{
		MemoryBytes: place.PlannedMemory(s), OverheadBytes: cost.Total, VFIODevices: devices,
	}).Memlock, nil
}

func bindsMemory(s *specv1.VirtualMachineSpec) bool {
	return slices.ContainsFunc(s.GetNuma().GetNodes(), func(n *specv1.NUMANode) bool { return n.GetHostNodes() != "" })
}

// hostNodes refuses nodes that the machine doesn't have; VMMs say no more than that
// something is invalid.
func hostNodes(host *sysfs.Host, s *specv1.VirtualMachineSpec, faults *spec.FieldErrors) {
	var there sysfs.IDList
	for _, n := range host.Nodes {
		there = append(there, n.ID)
	}
	for i, n := range s.GetNuma().GetNodes() {
		wanted, err := spec.ParseIDs(n.GetHostNodes())
		field := fmt.Sprintf("numa.nodes[%d].hostNodes", i)
		if err != nil {
			faults.Add(field, "%v", err)
		}
		for _, id := range wanted {
			if !slices.Contains(there, id) {
				faults.Add(field, "this machine has no NUMA node %d: it has %s", id, there)
				break
			}
		}
	}
}

// assign returns the device nodes, by their paths, that the VMM's user opens.
func (p *Platform) assign(others []*VM, host *sysfs.Host, s *specv1.VirtualMachineSpec, faults *spec.FieldErrors) []string {
	var nodes []string
	taken := p.groupsInUse(others)
	for i, d := range s.GetHostDevices() {
		field := fmt.Sprintf("hostDevices[%d]", i)
		var assigned finder.Assignment
		var obstacle *finder.Obstacle
		switch device := d.GetDevice().(type) {
		case *specv1.HostDevice_PciAddress:
			field += ".pciAddress"
			assigned, obstacle = finder.AssignPCI(host, device.PciAddress)
		case *specv1.HostDevice_Mdev:
			field += ".mdev"
			assigned, obstacle = finder.AssignMediated(host, device.Mdev)
		}
		if obstacle != nil {
			faults.Add(field, "%s", obstacle)
			continue
		}
		for _, node := range assigned.Nodes {
			path := p.node.Roots.DevPath(node)
			if other := taken[path]; other != "" {
				faults.Add(field, "IOMMU group %d is that of a device of %s, which runs: stop that first", assigned.Group, contract.OtherVM(other))
			}
			nodes = append(nodes, path)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// groupsInUse are the nodes of groups that other VMs have open, and whose they are.
// The container's own node can be opened by many.
func (p *Platform) groupsInUse(others []*VM) map[string]string {
	out := make(map[string]string)
	for _, other := range others {
		l := other.running()
		if l == nil {
			continue
		}
		for _, path := range l.lease.VFIO {
			if path != p.node.Roots.DevPath("vfio/vfio") {
				out[path] = other.name
			}
		}
	}
	return out
}
