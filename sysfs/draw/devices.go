package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// role is what a device is to anyone who gives devices to guests.
type role int

const (
	roleGraphics role = iota
	roleAccelerator
	roleNetwork
	roleStorage
	roleMemory
	roleUSB
	roleOther // anything else that is in VFIO's hands
)

// device is a device worth a line.
type device struct {
	role role
	// name in words, maker, and the ids that say exactly what it is.
	name, maker, ids string
	// address is the kernel's name for it.
	address string
	// names of what its driver made of it.
	names  []string
	driver string
	// group is the IOMMU group, -1: none; others is how many devices are in it
	// beside this one, without bridges.
	group, others int
	// functions of SR-IOV: those there, those of them bound to a vfio driver,
	// and how many there may be.
	functions, handed, total int
	// mediated is the count of its mediated devices.
	mediated int
}

// hang puts the devices on their nodes; those of no node on the machine.
func (m *model) hang() {
	h := m.host
	others := groupSizes(h)
	mediated := map[string]int{}
	for _, d := range h.MediatedDevices {
		mediated[d.Parent]++
	}
	functions := virtualFunctions(h)
	for i := range h.PCIDevices {
		p := &h.PCIDevices[i]
		r, listed := roleOf(p)
		_, hasParent := functions[p.PhysicalFunction]
		switch {
		case p.PhysicalFunction != "" && hasParent: // drawn with its physical function
			continue
		case !listed:
			m.unlisted++
			continue
		}
		d := describe(p, r)
		d.others = max(others[p.IOMMUGroup]-1, 0)
		d.mediated = mediated[p.Address]
		for _, f := range functions[p.Address] {
			d.functions++
			if vfioDriver(f.Driver) {
				d.handed++
			}
		}
		o := m.root
		if n := m.nodes[p.Node]; n != nil {
			o = n
		}
		o.devices = append(o.devices, d)
	}
	const hubClass = 9 // of the USB-IF's base classes
	for _, u := range h.USBDevices {
		if !u.RootHub && u.Class != hubClass {
			m.root.devices = append(m.root.devices, describeUSB(u))
		}
	}
	for _, o := range append(slices.Collect(maps.Values(m.nodes)), m.root) {
		slices.SortStableFunc(o.devices, func(a, b device) int { return cmp.Compare(a.role, b.role) })
	}
}

func describe(p *sysfs.PCIDevice, r role) device {
	d := device{
		role: r, name: capital(clean(p.ClassName)), maker: vendorName(p.Vendor),
		ids: fmt.Sprintf("%04x:%04x", p.Vendor, p.Device), address: clean(p.Address),
		driver: clean(p.Driver), group: p.IOMMUGroup,
	}
	if d.name == "" {
		d.name = r.String()
	}
	for _, n := range append(slices.Clone(p.Interfaces), p.BlockDevices...) {
		d.names = append(d.names, clean(n))
	}
	if p.SRIOV != nil {
		d.total = p.SRIOV.Total
	}
	return d
}

func describeUSB(u sysfs.USBDevice) device {
	d := device{
		role: roleUSB, name: "USB device", maker: clean(u.Manufacturer),
		ids: fmt.Sprintf("%04x:%04x", u.Vendor, u.Product), address: clean(u.Name), driver: clean(u.Driver), group: -1,
	}
	if name := clean(u.ProductName); name != "" {
		d.names = []string{name}
	}
	return d
}

// roleOf tells devices that somebody may want in a guest, or needs to know of,
// from the plumbing. What is bound to VFIO was put there by somebody.
func roleOf(p *sysfs.PCIDevice) (role, bool) {
	switch p.Class >> 16 {
	case 0x01:
		return roleStorage, true
	case 0x02:
		return roleNetwork, true
	case 0x03:
		return roleGraphics, true
	case 0x0b, 0x10, 0x12: // co-processor, encryption, processing accelerator
		return roleAccelerator, true
	}
	switch p.Class >> 8 {
	case 0x0502: // CXL
		return roleMemory, true
	case 0x0c04, 0x0c06: // Fibre Channel, InfiniBand
		return roleNetwork, true
	}
	return roleOther, p.Class>>16 != 0x06 && vfioDriver(p.Driver)
}

func (r role) String() string {
	return [...]string{"Graphics", "Accelerator", "Network", "Storage", "Memory", "USB", "Other device"}[r]
}

func vfioDriver(name string) bool {
	return strings.HasPrefix(name, "vfio") || strings.HasSuffix(name, "-vfio-pci") || strings.HasSuffix(name, "_vfio_pci")
}

// groupSizes counts the devices in each IOMMU group that would have to go to a
// guest together: all but bridges.
func groupSizes(h *sysfs.Host) map[int]int {
	sizes := map[int]int{}
	for _, p := range h.PCIDevices {
		if p.IOMMUGroup >= 0 && p.Class>>16 != 0x06 {
			sizes[p.IOMMUGroup]++
		}
	}
	return sizes
}

// virtualFunctions returns those of each physical function that is there.
func virtualFunctions(h *sysfs.Host) map[string][]*sysfs.PCIDevice {
	of := map[string][]*sysfs.PCIDevice{}
	for _, p := range h.PCIDevices {
		if p.SRIOV != nil {
			of[p.Address] = nil
		}
	}
	for i := range h.PCIDevices {
		p := &h.PCIDevices[i]
		if _, there := of[p.PhysicalFunction]; there && p.PhysicalFunction != "" {
			of[p.PhysicalFunction] = append(of[p.PhysicalFunction], p)
		}
	}
	return of
}

// facts are what is known of a device beside its name, shortest first.
func (d *device) facts() []string {
	var facts []string
	if d.driver != "" {
		facts = append(facts, "driver "+d.driver)
	} else if d.role != roleUSB {
		facts = append(facts, "no driver")
	}
	if d.group >= 0 {
		group := fmt.Sprintf("IOMMU group %d", d.group)
		if d.others > 0 {
			group += fmt.Sprintf(" (shared with %s)", count(d.others, "other"))
		}
		facts = append(facts, group)
	}
	if d.total > 0 {
		text := fmt.Sprintf("%d of %s", d.functions, count(d.total, "virtual function"))
		if d.handed > 0 {
			text += fmt.Sprintf(" (%d with VFIO)", d.handed)
		}
		facts = append(facts, text)
	}
	if d.mediated > 0 {
		facts = append(facts, count(d.mediated, "mediated device"))
	}
	return facts
}

// alike reports whether devices differ in no more than where they are.
func (d *device) alike(o *device) bool {
	return d.role == o.role && d.name == o.name && d.ids == o.ids && d.driver == o.driver &&
		(d.group < 0) == (o.group < 0) && d.others == o.others && d.functions == o.functions &&
		d.handed == o.handed && d.total == o.total && d.mediated == o.mediated && d.role != roleUSB
}

// runs cuts a list into stretches of what is alike.
func runs[T any](list []T, alike func(a, b T) bool) [][]T {
	var all [][]T
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && alike(list[i], list[j]) {
			j++
		}
		all = append(all, list[i:j])
		i = j
	}
	return all
}
