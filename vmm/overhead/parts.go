package overhead

import (
	"fmt"
	"slices"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

const (
	// shim is one of vmlet's own at rest, for which 8 MiB is a limit that is tested; savers are the buffers of a save or a restore:
	// at most 4 workers with 1 MiB each, and what the garbage collector lets lie.
	shim   = 8 * mib
	savers = 6 * mib
	// process is what the kernel keeps for a VM's processes whatever they do: stacks, page tables of programs, sockets, files.
	process = 2 * mib
	// entry is a page table's for one page, on every architecture.
	entry = 8
	// index is what tmpfs keeps for one page of a file: nodes of 576 bytes for 64 pages each (struct xa_node, linux/xarray.h).
	index = 9
)

// parts are all that a VM costs, the largest kinds first.
func (m *model) parts() []Part {
	var all []Part
	add := func(name string, bytes uint64, basis Basis, note string) {
		if bytes > 0 {
			all = append(all, Part{Name: name, Bytes: bytes, Limit: bytes, Basis: basis, Note: note})
		}
	}
	v, basis := m.vmm, basisOf(m.vmm.Measured)
	add("VMM", v.Base, basis, v.Note)
	add("shim", shim, Measured, "")
	add("save and restore", savers, Measured, "buffers, while one is under way")
	add("kernel", process, Measured, "stacks, sockets and files of both processes")
	add("virtual CPUs", m.vcpus*v.VCPU, basis, fmt.Sprintf("%d in the VMM", m.vcpus))
	add("disks", uint64(m.disks())*v.Disk, basis, fmt.Sprintf("%d with their queues", m.disks()))
	add("networks", uint64(len(m.Spec.GetNetworks()))*v.Network, basis, fmt.Sprintf("%d with their queues", len(m.Spec.GetNetworks())))
	add("other devices", uint64(m.devices())*v.Device, basis, "")
	add("watchdog, vsock", uint64(m.unmeasuredDevices())*v.Device, Estimated, "reckoned as the other devices")
	if m.Spec.GetDevices().GetVideo() != nil {
		add("video", v.Video, Calculated, "as if the guest drew on all of its memory")
		add("display", v.Display, Calculated, "a client of it: a copy of the display, and buffers")
	}
	if m.hasUSB() {
		add("USB", v.USB, basis, "the controller")
	}
	firmware, how := m.firmware()
	add("firmware", firmware, how, "UEFI: its code, its variables and copies of them")
	add("page tables", m.tables(), Calculated, "as if the guest used all of its RAM")
	return append(all, m.special()...)
}

func basisOf(measured bool) Basis {
	if measured {
		return Measured
	}
	return Estimated
}

// special are parts that the hypervisor or an unusual device asks for.
func (m *model) special() []Part {
	var all []Part
	c := m.costs
	basis := basisOf(c.Measured)
	if bytes := c.VM + m.vcpus*c.VCPU; bytes > 0 {
		all = append(all, Part{m.Hypervisor.Name(), bytes, bytes, basis, "the kernel's for the machine and each virtual CPU"})
	}
	if c.Code > 0 {
		ordinary := c.Code + m.vcpus*c.CodeVCPU
		all = append(all, Part{"translated code", ordinary, max(ordinary, c.CodeLimit+m.vcpus*c.CodeVCPU), basis,
			"grows with the code that the guest runs, to the limit"})
	}
	if devices := len(m.Spec.GetHostDevices()); devices > 0 {
		bytes := m.memory/m.page*entry + uint64(devices)*4*mib
		all = append(all, Part{"host devices", bytes, bytes, Estimated, "the IOMMU's page tables, and 4 MiB a device"})
	}
	return all
}

// disks, with cloud-init's seed, which is one.
func (m *model) disks() int {
	n := len(m.Spec.GetDisks())
	if m.Spec.GetCloudInit() != nil {
		n++
	}
	return n
}

// devices beside disks and networks.
func (m *model) devices() int {
	d := m.Spec.GetDevices()
	return count(d.GetConsole(), d.GetGuestAgent(), d.GetEntropy(), d.GetBalloon()) + len(d.GetInputs())
}

// hasUSB tells whether anything is plugged into a USB controller.
func (m *model) hasUSB() bool {
	return slices.ContainsFunc(m.Spec.GetDisks(), func(d *specv1.Disk) bool { return d.GetBus() == spec.BusUSB }) ||
		slices.ContainsFunc(m.Spec.GetDevices().GetInputs(), func(i *specv1.Input) bool { return i.GetBus() == spec.BusUSB })
}

// unmeasuredDevices are those that no measured VM had.
func (m *model) unmeasuredDevices() int {
	d := m.Spec.GetDevices()
	return count(d.GetWatchdog() != nil, d.GetVsock() != nil)
}

func count(there ...bool) (n int) {
	for _, is := range there {
		if is {
			n++
		}
	}
	return n
}

// firmware of UEFI lies in the VMM's memory: OVMF's few MiB on amd64; on arm64 two flash chips of 64 MiB, which its images fill
// (hw/arm/virt.c). A BIOS is a part of the guest's RAM, or next to nothing.
func (m *model) firmware() (uint64, Basis) {
	switch {
	case m.Spec.GetBoot().GetFirmware() != spec.FirmwareUEFI || m.Spec.GetBoot().GetKernel() != nil:
		return 0, Measured
	case m.Arch == spec.ArchARM64:
		return 136 * mib, Calculated
	}
	return 8 * mib, Measured
}

// tables are what the kernel keeps for each page of guest RAM: an entry in the VMM's page table, one in the hypervisor's own, and
// the file's index. The tables above them are a 512th of that.
func (m *model) tables() uint64 {
	page := uint64(entry + index)
	if m.costs.SecondTables {
		page += entry
	}
	bytes := m.memory / m.page * page
	return bytes + bytes/256
}
