package sysfs

import (
	"slices"
	"strings"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// pciFolder is where the PCI functions of all domains are
// (Documentation/ABI/testing/sysfs-bus-pci).
const pciFolder = "bus/pci/devices"

// maxResetMethods is above PCI_NUM_RESET_METHODS of include/linux/pci.h (8 with
// the place that isn't used), so that a method more does no harm.
const maxResetMethods = 16

// maxBridges is how many bridges can be above a function: each has a bus of its
// own, and a domain has 256.
const maxBridges = 256

// pciReader reads the functions of PCI devices, and how they belong together.
type pciReader struct{ *deviceReader }

// readPCI reads what each function says of itself. Its config file is not
// touched: reading it wakes a device that sleeps, and its cached copies in
// other files don't.
func (d pciReader) readPCI() {
	root := d.sys(pciFolder)
	isAddress := func(name string) bool { _, ok := notation.FolderPCIAddress(name); return ok }
	names := d.choose(root, isAddress, "PCI addresses")
	for _, name := range names {
		address, _ := notation.FolderPCIAddress(name)
		f := &pciFunction{address: address, dir: root + "/" + name}
		f.Address = name
		entries := d.present(f.dir)
		if len(entries) == 0 {
			continue
		}
		d.identify(f, entries)
		d.place(f, entries)
		d.relate(f, entries)
		d.made(f, entries)
		d.pci[address] = f
		d.order = append(d.order, f)
	}
	slices.SortFunc(d.order, func(a, b *pciFunction) int { return a.address.Compare(b.address) })
}

// identify reads what the function is. A kernel before 4.10 has no file revision.
func (d pciReader) identify(f *pciFunction, entries []string) {
	for _, name := range []string{"class", "vendor", "device"} {
		d.missing(f.dir, name, entries)
	}
	f.Class = uint32(d.hex(f.dir+"/class", 24))
	f.ClassName = pciClassName(f.Class)
	f.Vendor = uint16(d.hex(f.dir+"/vendor", 16))
	f.Device = uint16(d.hex(f.dir+"/device", 16))
	f.SubsystemVendor = uint16(d.hex(f.dir+"/subsystem_vendor", 16))
	f.SubsystemDevice = uint16(d.hex(f.dir+"/subsystem_device", 16))
	f.Revision = uint8(d.hex(f.dir+"/revision", 8))
	if has(entries, "reset_method") {
		f.ResetMethods = d.resetMethods(f.dir + "/reset_method")
	}
}

func (d pciReader) resetMethods(path string) []string {
	text, _ := d.text(path)
	methods := strings.Fields(text)
	if len(methods) > maxResetMethods || slices.ContainsFunc(methods, func(m string) bool { return !isWord(m) }) {
		d.note(path, "%.40q are not methods of resetting", text)
		return nil
	}
	return methods
}

// place reads where the function is and who drives it. Its IOMMU group is read
// when it is known which there are.
func (d pciReader) place(f *pciFunction, entries []string) {
	f.Node, f.IOMMUGroup, f.CPUs = -1, -1, IDList{}
	if has(entries, "numa_node") {
		f.Node = d.node(f.dir + "/numa_node")
	}
	if has(entries, "local_cpulist") {
		f.CPUs = d.cpus(f.dir + "/local_cpulist")
	}
	f.Driver, f.VFIODevice, f.leavesDMA = d.driver(f.dir, entries)
}

// relate collects the names of other functions.
func (d pciReader) relate(f *pciFunction, entries []string) {
	f.grouped, f.isVirtual = has(entries, "iommu_group"), has(entries, "physfn")
	f.mediates = has(entries, "mdev_supported_types")
	for _, name := range entries {
		if child, ok := notation.FolderPCIAddress(name); ok && child != f.address {
			f.children = append(f.children, child)
		}
		if !numberedAs(name, "virtfn") {
			continue
		}
		path := f.dir + "/" + name
		target, _ := d.link(path)
		address, ok := notation.FolderPCIAddress(target)
		if !ok {
			d.note(path, "it leads to %.80q, which is not a PCI address", target)
			continue
		}
		f.virtual = append(f.virtual, address)
	}
	if has(entries, "sriov_totalvfs") {
		// TotalVFs has 16 bits (PCI Express Base Specification, SR-IOV Extended Capability).
		if total := d.within(f.dir+"/sriov_totalvfs", 0, 1<<16-1, -1); total >= 0 {
			f.SRIOV = &SRIOV{Total: total, VirtualFunctions: []string{}}
		}
	}
}

// finishPCI puts the functions in relation to one another.
func (d pciReader) finishPCI() {
	for _, f := range d.order {
		if f.isVirtual {
			f.PhysicalFunction = d.physfn(f)
		}
		for _, child := range f.children {
			d.adopt(f, child)
		}
	}
	d.h.PCIDevices = make([]PCIDevice, 0, len(d.order))
	for _, f := range d.order {
		d.virtualFunctions(f)
		d.h.PCIDevices = append(d.h.PCIDevices, f.PCIDevice)
	}
}

// adopt makes a function the parent of another, whose folder is in its own. One
// has one parent, and is not above itself.
func (d pciReader) adopt(parent *pciFunction, address PCIAddress) {
	child := d.pci[address]
	path := parent.dir + "/" + address.String()
	if child == nil {
		d.note(path, "there is no such device in %s", d.sys(pciFolder))
		return
	}
	if child.above != nil {
		d.note(path, "the device is in the folder of %s already; it is left there", child.Parent)
		return
	}
	depth := 0
	for above := parent; above != nil; above = above.above {
		if depth++; above == child || depth > maxBridges {
			d.note(path, "the device would be below itself, or below more than %d bridges", maxBridges)
			return
		}
	}
	child.above, child.Parent = parent, parent.Address
}

// physfn returns the address of a virtual function's physical one; empty: it is
// not there.
func (d pciReader) physfn(f *pciFunction) string {
	path := f.dir + "/physfn"
	address, ok := d.linkAddress(path)
	if !ok {
		return ""
	}
	if address == f.address {
		d.note(path, "a function can't be its own virtual one")
		return ""
	}
	return address.String()
}

// virtualFunctions keeps those that are there and say so themselves.
func (d pciReader) virtualFunctions(f *pciFunction) {
	for _, address := range f.virtual {
		v := d.pci[address]
		switch {
		case f.SRIOV == nil:
			d.note(f.dir, "it has the virtual function %s and no number of them (sriov_totalvfs)", address)
		case v == nil:
			d.note(f.dir, "its virtual function %s is not there", address)
		case v.PhysicalFunction != f.Address:
			d.note(f.dir, "its virtual function %s is not said to be one of it (physfn)", address)
		default:
			f.SRIOV.VirtualFunctions = append(f.SRIOV.VirtualFunctions, v.Address)
		}
	}
	if f.SRIOV != nil {
		slices.SortFunc(f.SRIOV.VirtualFunctions, notation.CompareDevices)
		f.SRIOV.VirtualFunctions = slices.Compact(f.SRIOV.VirtualFunctions)
	}
}
