package sysfs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// brokenPCI: names, links and contents that make no sense. 0000:00:01.0 is the
// one that is whole.
func brokenPCI(tree *sysfstest.Tree) {
	tree.PCI(sysfstest.PCI{Address: "0000:00:01.0", Class: 0x060400, Vendor: 0x8086, Device: 1, Driver: "pcieport"})
	for _, name := range []string{"0000:00:20.0", "0000:00:01.8", "00:01.0", "0000:00:0A.0", "00000:00:01.0", "\x1b[2J"} {
		tree.Folder("sys/bus/pci/devices/" + name)
	}
	tree.RawLink("sys/bus/pci/devices/0000:00:02.0", "../../../devices/nowhere")
	tree.RawLink("sys/bus/pci/devices/0000:00:03.0", "0000:00:03.0")
	tree.RawLink("sys/bus/pci/devices/0000:00:04.0", "/etc")
	tree.RawLink("sys/bus/pci/devices/0000:00:05.0", "../../../../proc")
	odd := tree.PCI(sysfstest.PCI{Address: "0000:00:06.0", Node: 7, CPUs: "0-1,60000"})
	tree.File(odd+"/class", "0x1234567")
	tree.File(odd+"/vendor", "-1")
	tree.Raw(odd+"/device", "\x00\xff")
	tree.File(odd+"/revision", "0x1ff")
	tree.File(odd+"/reset_method", "flr \x1b[2J")
	tree.RawLink(odd+"/driver", "..")
	tree.RawLink(odd+"/iommu_group", "../../../kernel/iommu_groups/x1")
	tree.File(odd+"/sriov_totalvfs", "-3")
	tree.RawLink(odd+"/virtfn0", "../0000:00:01.0")
	tree.RawLink(odd+"/physfn", "../0000:00:06.0")
	tree.Folder(odd + "/0000:77:00.0")

	pf := tree.PCI(sysfstest.PCI{Address: "0000:00:07.0", Class: 0x020000, Vendor: 1, Device: 2})
	tree.File(pf+"/sriov_totalvfs", "4")
	tree.RawLink(pf+"/virtfn0", "../nowhere")
	tree.RawLink(pf+"/virtfn1", "../0000:99:00.0")
	tree.RawLink(pf+"/virtfn2", "../0000:00:01.0")
	tree.File(pf+"/virtfn3", "")
	tree.RawLink(pf+"/iommu_group", "../../../kernel/iommu_groups/9")
	tree.RawLink(pf+"/physfn", "../0000:98:00.0")
	tree.Folder(pf + "/vfio-dev/vfio1")
	tree.Folder(pf + "/vfio-dev/vfio2")
	tree.Folder(pf + "/net/\x1b[31m")
	tree.Remove(pf + "/class")
	tree.Folder(pf + "/class/x")

	// Two that are in each other's folders, and one in both.
	a := tree.PCI(sysfstest.PCI{Address: "0000:10:00.0", Class: 0x060400, Vendor: 1, Device: 3})
	b := tree.PCI(sysfstest.PCI{Address: "0000:11:00.0", Class: 0x060400, Vendor: 1, Device: 3, Parent: "0000:10:00.0"})
	tree.Folder(b + "/0000:10:00.0")
	tree.PCI(sysfstest.PCI{Address: "0000:12:00.0", Class: 0x020000, Vendor: 1, Device: 3, Parent: "0000:11:00.0"})
	tree.Folder(a + "/0000:12:00.0")
	tree.RawLink(a+"/host0", ".")
}

// brokenGroups: groups that do not agree with the devices.
func brokenGroups(tree *sysfstest.Tree) {
	tree.PCI(sysfstest.PCI{Address: "0000:00:01.0", Class: 0x020000, Vendor: 1, Device: 1, Driver: "vfio-pci", Group: "1"})
	tree.PCI(sysfstest.PCI{Address: "0000:00:02.0", Class: 0x020000, Vendor: 1, Device: 1, Driver: "vfio-pci", Group: "2"})
	tree.Remove("sys/kernel/iommu_groups/1/devices/0000:00:01.0")
	tree.File("sys/kernel/iommu_groups/1/type", "\x1b[2J")
	tree.PCI(sysfstest.PCI{Address: "0000:00:03.0", Class: 0x020000, Vendor: 1, Device: 1, Driver: "vfio-pci"})
	tree.RawLink("sys/kernel/iommu_groups/2/devices/0000:00:03.0", "../../../../devices/pci0000:00/0000:00:03.0")
	tree.PCI(sysfstest.PCI{Address: "0000:00:04.0", Class: 0x020000, Vendor: 1, Device: 1, Driver: "vfio-pci", Group: "3"})
	tree.RawLink("sys/kernel/iommu_groups/3/devices/0000:77:00.0", "../nowhere")
	tree.PCI(sysfstest.PCI{Address: "0000:00:05.0", Class: 0x020000, Vendor: 1, Device: 1, Driver: "vfio-pci", Group: "4"})
	tree.RawLink("sys/kernel/iommu_groups/4/devices/platform-thing", "../nowhere")
	// A driver that can't be told is one.
	unknown := tree.PCI(sysfstest.PCI{Address: "0000:00:06.0", Class: 0x020000, Vendor: 1, Device: 1, Group: "5"})
	tree.File(unknown+"/driver", "")
	// Devices of other buses: one driven, one not.
	tree.File("sys/devices/platform/fff51000.ethernet/uevent", "")
	tree.Link("sys/devices/platform/fff51000.ethernet/driver", "sys/bus/platform/drivers/xgmac")
	tree.Member("6", "sys/devices/platform/fff51000.ethernet")
	tree.File("sys/devices/platform/fff52000.dma/uevent", "")
	tree.Member("7", "sys/devices/platform/fff52000.dma")
	tree.Folder("sys/kernel/iommu_groups/8/devices")
	tree.Folder("sys/kernel/iommu_groups/08")
	tree.Folder("sys/kernel/iommu_groups/99999999999")
	tree.File("dev/vfio/strange", "")
	tree.File("dev/vfio/devices/vfiox", "")
	tree.File("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "maybe")
}

// brokenMdev: slices of nothing, of no type, with names that are no UUIDs.
func brokenMdev(tree *sysfstest.Tree) {
	gpu := tree.PCI(sysfstest.PCI{Address: "0000:86:00.0", Class: 0x030200, Vendor: 0x10de, Device: 0x1eb8})
	tree.MediatedType(gpu, "nvidia-222", "GRID\x1b[31m  T4-1B", 14)
	tree.File(gpu+"/mdev_supported_types/nvidia-222/available_instances", "-5")
	tree.File(gpu+"/mdev_supported_types/nvidia-222/description", strings.Repeat("long ", 1000))
	tree.RawLink(gpu+"/mdev_supported_types/nvidia-223", "nowhere")
	tree.Folder(gpu + "/mdev_supported_types/nvidia-224/devices")
	tree.Mediated(gpu, "00000000-0000-0000-0000-000000000001", "nvidia-999", "")
	orphan := "sys/devices/virtual/lost/00000000-0000-0000-0000-000000000002"
	tree.Link("sys/bus/mdev/devices/00000000-0000-0000-0000-000000000002", orphan)
	tree.RawLink(orphan+"/iommu_group", "../77")
	tree.RawLink(orphan+"/mdev_type", "../nvidia-222")
	tree.RawLink("sys/bus/mdev/devices/00000000-0000-0000-0000-000000000003", "../../nowhere")
	tree.Folder("sys/bus/mdev/devices/00000000-0000-0000-0000-00000000000G")
	tree.RawLink("sys/class/mdev_bus/0000:99:00.0", "../../nowhere")
	tree.RawLink("sys/class/mdev_bus/loop", "loop")
}

// brokenUSB: numbers that are none, or no device's.
func brokenUSB(tree *sysfstest.Tree) {
	usb := tree.USB("sys/devices/x", "usb1", 1, 1, 0x1d6b, 2, "480")
	tree.File(usb+"/speed", "NaN")
	tree.File(usb+"/bDeviceClass", "zz")
	odd := tree.USB(usb, "1-2", 0, 1000, 1, 1, "-12")
	tree.File(odd+"/idVendor", "0x12345")
	tree.Remove(odd + "/idProduct")
	tree.RawLink("sys/bus/usb/devices/1-3", "../../nowhere")
	for _, name := range []string{"1-", "usb", "1-1..2", "1-1:x", "-1", "a-1", "1-01"} {
		tree.Folder("sys/bus/usb/devices/" + name)
	}
}

// checkReferences fails the test if an id refers to nothing, an array isn't
// sorted or a parent is below itself.
func checkReferences(t *testing.T, h *Host) {
	t.Helper()
	pci, groups, types := map[string]PCIDevice{}, map[int]IOMMUGroup{}, map[string]bool{}
	for _, d := range h.PCIDevices {
		pci[d.Address] = d
	}
	for _, g := range h.IOMMUGroups {
		groups[g.ID] = g
	}
	for _, kind := range h.MediatedDeviceTypes {
		types[kind.Parent+" "+kind.ID] = true
	}
	check := func(ok bool, format string, args ...any) {
		t.Helper()
		if !ok {
			t.Errorf(format, args...)
		}
	}
	isFunction := func(address string) bool { _, ok := pci[address]; return ok }
	isGroup := func(id int) bool { _, ok := groups[id]; return ok || id == -1 }
	isNode := func(id int) bool {
		return id == -1 || slices.ContainsFunc(h.Nodes, func(n Node) bool { return n.ID == id })
	}
	for _, d := range h.PCIDevices {
		check(d.Parent == "" || isFunction(d.Parent), "%s: parent %s is not there", d.Address, d.Parent)
		check(d.PhysicalFunction == "" || isFunction(d.PhysicalFunction), "%s: physical function %s is not there", d.Address, d.PhysicalFunction)
		check(isGroup(d.IOMMUGroup), "%s: no group %d", d.Address, d.IOMMUGroup)
		check(d.IOMMUGroup < 0 || slices.Contains(groups[d.IOMMUGroup].Devices, d.Address), "%s is not in its group", d.Address)
		check(isNode(d.Node), "%s: no node %d", d.Address, d.Node)
		check(d.CPUs != nil, "%s: CPUs are nil", d.Address)
		for _, id := range d.CPUs {
			check(h.byID(id) != nil, "%s: no CPU %d", d.Address, id)
		}
		if d.SRIOV != nil {
			for _, v := range d.SRIOV.VirtualFunctions {
				check(pci[v].PhysicalFunction == d.Address, "%s: virtual function %s is not its own", d.Address, v)
			}
		}
		steps := 0
		for above := d; above.Parent != "" && steps <= len(pci); above = pci[above.Parent] {
			steps++
		}
		check(steps <= len(pci), "%s is below itself", d.Address)
	}
	for _, g := range h.IOMMUGroups {
		for _, name := range g.Devices {
			if _, ok := notation.FolderPCIAddress(name); ok {
				check(pci[name].IOMMUGroup == g.ID && isFunction(name), "group %d: %s is not in it", g.ID, name)
			}
		}
	}
	for _, m := range h.MediatedDevices {
		check(isGroup(m.IOMMUGroup) && isNode(m.Node), "%s: group %d, node %d", m.UUID, m.IOMMUGroup, m.Node)
		check(m.Type == "" || types[m.Parent+" "+m.Type], "%s: %s has no type %s", m.UUID, m.Parent, m.Type)
	}
	checkOrder(t, h)
}

func checkOrder(t *testing.T, h *Host) {
	t.Helper()
	for what, sorted := range map[string]bool{
		"PCI devices": slices.IsSortedFunc(h.PCIDevices, func(a, b PCIDevice) int { return notation.CompareDevices(a.Address, b.Address) }),
		"groups":      slices.IsSortedFunc(h.IOMMUGroups, func(a, b IOMMUGroup) int { return a.ID - b.ID }),
		"mediated":    slices.IsSortedFunc(h.MediatedDevices, func(a, b MediatedDevice) int { return strings.Compare(a.UUID, b.UUID) }),
		"nil arrays": h.PCIDevices != nil && h.IOMMUGroups != nil && h.MediatedDevices != nil && h.MediatedDeviceTypes != nil &&
			h.USBDevices != nil && h.VFIO.Groups != nil && h.VFIO.Cdevs != nil && h.VFIO.Modules != nil,
	} {
		if !sorted {
			t.Errorf("%s: not in order", what)
		}
	}
	for _, note := range h.Notes {
		if strings.ContainsFunc(note.Path+note.Message, func(c rune) bool { return c < ' ' }) {
			t.Errorf("a note has characters that upset a terminal: %s", fmt.Sprintf("%q", note))
		}
	}
}
