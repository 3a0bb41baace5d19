package sysfs

import (
	"slices"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// groupFolder is where the IOMMU groups are
// (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
const groupFolder = "kernel/iommu_groups"

// readIOMMUGroups reads the groups and who is in them. A PCI function is in the
// group that its own link says; what the group's folder says must agree.
func (d *deviceReader) readIOMMUGroups() {
	root := d.sys(groupFolder)
	isNumber := func(name string) bool { _, ok := decimal(name); return ok }
	names := d.choose(root, isNumber, "numbers of groups")
	for _, name := range names {
		group, _ := decimal(name)
		d.groups[group] = true
	}
	linked := len(names) == 0 && d.linkedGroups(root)
	members := map[int][]*pciFunction{}
	for _, f := range d.order {
		if !f.grouped {
			continue
		}
		if f.IOMMUGroup = d.linkGroup(f.dir + "/iommu_group"); f.IOMMUGroup >= 0 {
			members[f.IOMMUGroup] = append(members[f.IOMMUGroup], f)
		}
	}
	d.h.IOMMUGroups = make([]IOMMUGroup, 0, len(names))
	if linked {
		for id, functions := range members {
			d.h.IOMMUGroups = append(d.h.IOMMUGroups, linkedGroup(id, functions))
		}
	}
	for _, name := range names {
		id, _ := decimal(name)
		d.h.IOMMUGroups = append(d.h.IOMMUGroups, d.group(id, root+"/"+name, members[id]))
	}
	slices.SortFunc(d.h.IOMMUGroups, func(a, b IOMMUGroup) int { return a.ID - b.ID })
}

// linkedGroups takes the groups that PCI functions say they are in for the existing
// ones, and reports whether there are any: a tree may be captured without
// the groups' own folder.
func (d *deviceReader) linkedGroups(root string) bool {
	for _, f := range d.order {
		if !f.grouped {
			continue
		}
		if name, ok := d.link(f.dir + "/iommu_group"); ok {
			if group, ok := decimal(name); ok {
				d.groups[group] = true
			}
		}
	}
	if len(d.groups) > 0 {
		d.note(root, "it has no group, and PCI devices say that they are in some: who else is in these is not known, and they are taken not to be viable")
	}
	return len(d.groups) > 0
}

func linkedGroup(id int, functions []*pciFunction) IOMMUGroup {
	g := IOMMUGroup{ID: id, Devices: []string{}}
	for _, f := range functions {
		g.Devices = append(g.Devices, f.Address)
	}
	slices.SortFunc(g.Devices, notation.CompareDevices)
	return g
}

// group reads one group. Where it is unknown who is in it, or what drives
// one, it may be in use, and is not viable.
func (d *deviceReader) group(id int, dir string, functions []*pciFunction) IOMMUGroup {
	g := IOMMUGroup{ID: id, Devices: []string{}, Viable: true}
	if kind, ok := d.text(dir + "/type"); ok && isWord(kind) {
		g.Type = kind
	} else if ok {
		d.note(dir+"/type", "%.40q is not a type of IOMMU group", kind)
	}
	listed := d.entries(dir + "/devices")
	for _, f := range functions {
		if !has(listed, f.Address) {
			d.note(dir+"/devices", "the device %s says that it is in this group, and is not listed; the group is taken not to be viable", f.Address)
			g.Viable = false
		}
		g.Devices = append(g.Devices, f.Address)
		g.Viable = g.Viable && f.leavesDMA
	}
	for _, name := range listed {
		if !hasFunction(functions, name) {
			d.member(&g, dir+"/devices", name)
		}
	}
	slices.SortFunc(g.Devices, notation.CompareDevices)
	g.Viable = g.Viable && len(g.Devices) > 0
	return g
}

// hasFunction reports whether a name is among functions sorted by address.
func hasFunction(functions []*pciFunction, name string) bool {
	address, ok := notation.FolderPCIAddress(name)
	if !ok {
		return false
	}
	_, found := slices.BinarySearchFunc(functions, address, func(f *pciFunction, a PCIAddress) int { return f.address.Compare(a) })
	return found
}

// member adds a device that is in the group's folder alone: one of another bus.
func (d *deviceReader) member(g *IOMMUGroup, folder, name string) {
	fault := "is not there"
	if address, ok := notation.FolderPCIAddress(name); ok {
		if d.pci[address] != nil {
			fault = "doesn't say itself that it is in this group"
		}
	} else if isWord(name) {
		dir := folder + "/" + name
		if entries := d.entries(dir); len(entries) > 0 {
			_, _, leaves := d.driver(dir, entries)
			g.Devices = append(g.Devices, name)
			g.Viable = g.Viable && leaves
			return
		}
	}
	d.note(folder, "the device %.80q %s; the group is taken not to be viable", name, fault)
	g.Viable = false
}
