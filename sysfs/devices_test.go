package sysfs

import (
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

// deviceFacts are the parts of a Host that devices fill.
type deviceFacts struct {
	PCIDevices          []PCIDevice          `json:"pciDevices"`
	IOMMUGroups         []IOMMUGroup         `json:"iommuGroups"`
	MediatedDevices     []MediatedDevice     `json:"mediatedDevices"`
	MediatedDeviceTypes []MediatedDeviceType `json:"mediatedDeviceTypes"`
	USBDevices          []USBDevice          `json:"usbDevices"`
	VFIO                VFIO                 `json:"vfio"`
	Notes               []Note               `json:"notes"`
}

func devicesOf(h *Host) deviceFacts {
	return deviceFacts{h.PCIDevices, h.IOMMUGroups, h.MediatedDevices, h.MediatedDeviceTypes, h.USBDevices, h.VFIO, h.Notes}
}

// twoNodes is a machine for devices to be in.
func twoNodes(t testing.TB) *sysfstest.Tree {
	return sysfstest.Machine{Packages: 2, Cores: 2, Caches: []sysfstest.Cache{}}.SplitNodes(2, 1<<30).Write(t)
}

// TestDevices compares what is read of odd machines with testdata/devices-NAME.json.
func TestDevices(t *testing.T) {
	for name, build := range map[string]func(*sysfstest.Tree){
		"none": func(*sysfstest.Tree) {}, "gpu": gpuMachine, "sriov": sriovMachine, "domains": domainsMachine,
		"no-iommu": noIOMMUMachine, "mdev": mdevMachine, "usb": usbMachine, "disks": disksMachine,
		"linked-groups": func(tree *sysfstest.Tree) {
			gpuMachine(tree)
			tree.Remove("sys/kernel/iommu_groups")
		},
		"broken-pci": brokenPCI, "broken-groups": brokenGroups, "broken-mdev": brokenMdev, "broken-usb": brokenUSB,
	} {
		t.Run(name, func(t *testing.T) {
			tree := twoNodes(t)
			build(tree)
			h := Read(rootsOf(tree))
			checkReferences(t, h)
			golden(t, "devices-"+name, tree, devicesOf(h))
		})
	}
}

// gpuMachine: a GPU and its audio function share a group with the bridge above
// them; beside them a group that isn't viable as one function is the host's, and
// one where a conventional bridge's driver keeps the DMA.
func gpuMachine(tree *sysfstest.Tree) {
	tree.PCI(sysfstest.PCI{Address: "0000:00:00.0", Class: 0x060000, Vendor: 0x8086, Device: 0x2020, Node: 0, CPUs: "0-1", Group: "0"})
	tree.PCI(sysfstest.PCI{Address: "0000:00:01.0", Class: 0x060400, Vendor: 0x8086, Device: 0x2030, Driver: "pcieport", Group: "1", CPUs: "0-1"})
	gpu := tree.PCI(sysfstest.PCI{Address: "0000:01:00.0", Parent: "0000:00:01.0", Class: 0x030200, Vendor: 0x10de, Device: 0x1eb8,
		Driver: "vfio-pci", Group: "1", CPUs: "0-1", Reset: "flr bus"})
	tree.File(gpu+"/vfio-dev/vfio0/dev", "511:0")
	tree.PCI(sysfstest.PCI{Address: "0000:01:00.1", Parent: "0000:00:01.0", Class: 0x040300, Vendor: 0x10de, Device: 0x10f8,
		Driver: "pci-stub", Group: "1", CPUs: "0-1"})
	tree.PCI(sysfstest.PCI{Address: "0000:00:1f.0", Class: 0x060100, Vendor: 0x8086, Device: 0xa1c1, Group: "2", CPUs: "0-1", Driver: "lpc_ich"})
	tree.PCI(sysfstest.PCI{Address: "0000:00:1f.2", Class: 0x010601, Vendor: 0x8086, Device: 0xa182, Group: "2", CPUs: "0-1", Driver: "vfio-pci"})
	tree.PCI(sysfstest.PCI{Address: "0000:80:02.0", Class: 0x060400, Vendor: 0x1b36, Device: 1, Driver: "shpchp", Group: "10", Node: 1, CPUs: "2-3"})
	tree.PCI(sysfstest.PCI{Address: "0000:81:01.0", Parent: "0000:80:02.0", Class: 0x020000, Vendor: 0x8086, Device: 0x100e, Driver: "vfio-pci", Group: "10", Node: 1, CPUs: "2-3"})
	for _, name := range []string{"vfio", "vfio_pci", "vfio_iommu_type1", "mlx5_vfio_pci", "kvm"} {
		tree.Folder("sys/module/" + name)
	}
	tree.File("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N")
	for _, name := range []string{"vfio", "1", "2", "10", "devices/vfio0", "devices/vfio10", "devices/vfio2"} {
		tree.File("dev/vfio/"+name, "")
	}
	tree.File("dev/iommu", "")
}

// sriovMachine: a network card with four of eight virtual functions, two of them
// bound to vfio-pci and one to a driver made for it, on a kernel without vfio-dev.
func sriovMachine(tree *sysfstest.Tree) {
	tree.PCI(sysfstest.PCI{Address: "0000:3a:00.0", Class: 0x060400, Vendor: 0x8086, Device: 0x2030, Driver: "pcieport", Group: "30", Node: 1, CPUs: "2-3"})
	pf := tree.PCI(sysfstest.PCI{Address: "0000:3b:00.0", Parent: "0000:3a:00.0", Class: 0x020000, Vendor: 0x15b3, Device: 0x101d, Driver: "mlx5_core", Group: "31",
		Node: 1, CPUs: "2-3", Reset: "flr bus"})
	tree.File(pf+"/net/ens1f0np0/address", "00:00:00:00:00:01")
	tree.File(pf+"/net/ens1f0npf0vf1/address", "00:00:00:00:00:02")
	drivers := []string{"vfio-pci", "vfio-pci", "mlx5_vfio_pci", "mlx5_core"}
	virtual := []string{"0000:3b:00.2", "0000:3b:00.3", "0000:3b:01.0", "0000:3b:10.0"}
	for i, address := range virtual {
		tree.PCI(sysfstest.PCI{Address: address, Parent: "0000:3a:00.0", Class: 0x020000, Vendor: 0x15b3, Device: 0x101e, Driver: drivers[i],
			Group: []string{"32", "33", "34", "35"}[i], Node: 1, CPUs: "2-3", Reset: "flr"})
	}
	tree.VirtualFunctions("0000:3b:00.0", 8, virtual...)
	tree.PCI(sysfstest.PCI{Address: "0000:3c:00.0", Class: 0x020700, Vendor: 0x15b3, Device: 0x1017, Node: 1, CPUs: "2-3"})
	tree.VirtualFunctions("0000:3c:00.0", 16)
}

// domainsMachine: disks in domains of their own behind Intel's VMD, and numbers
// that are not in the order of their text.
func domainsMachine(tree *sysfstest.Tree) {
	vmd := tree.PCI(sysfstest.PCI{Address: "0000:e0:05.5", Class: 0x010400, Vendor: 0x8086, Device: 0x201d, Driver: "vmd", Group: "5"})
	root := vmd + "/pci10000:e0/10000:e0:02.0"
	tree.Link("sys/bus/pci/devices/10000:e0:02.0", root)
	tree.File(root+"/class", "0x060400")
	tree.File(root+"/vendor", "0x8086")
	tree.File(root+"/device", "0x2032")
	disk := tree.PCI(sysfstest.PCI{Address: "10000:e1:00.0", Parent: "10000:e0:02.0", Class: 0x010802, Vendor: 0x144d, Device: 0xa808, Driver: "nvme"})
	tree.File(disk+"/nvme/nvme1/nvme1n1/size", "1")
	tree.PCI(sysfstest.PCI{Address: "1000:00:00.0", Class: 0x020000, Vendor: 0x1d0f, Device: 1})
	tree.PCI(sysfstest.PCI{Address: "ffff:ff:1f.7", Class: 0x120000, Vendor: 0x1d0f, Device: 2, Node: -1})
}

// noIOMMUMachine: vfio without an IOMMU, and a function without most files.
func noIOMMUMachine(tree *sysfstest.Tree) {
	tree.PCI(sysfstest.PCI{Address: "0000:00:03.0", Class: 0x020000, Vendor: 0x1af4, Device: 0x1041, Driver: "vfio-pci", Node: -1})
	tree.File("sys/devices/pci0000:00/0000:00:04.0/class", "0xff0000")
	tree.Link("sys/bus/pci/devices/0000:00:04.0", "sys/devices/pci0000:00/0000:00:04.0")
	tree.File("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y")
	tree.File("dev/vfio/vfio", "")
	tree.File("dev/vfio/noiommu-0", "")
}

// mdevMachine: a GPU that offers types, two slices of it, and a parent that is
// no PCI function.
func mdevMachine(tree *sysfstest.Tree) {
	gpu := tree.PCI(sysfstest.PCI{Address: "0000:86:00.0", Class: 0x030200, Vendor: 0x10de, Device: 0x1eb8, Driver: "nvidia", Group: "40", Node: 1, CPUs: "2-3"})
	tree.MediatedType(gpu, "nvidia-222", "GRID T4-1B", 14)
	tree.MediatedType(gpu, "nvidia-230", "GRID T4-1Q", 0)
	first := tree.Mediated(gpu, "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "nvidia-222", "121")
	tree.File(first+"/vfio-dev/vfio3/dev", "511:3")
	tree.Mediated(gpu, "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002", "nvidia-222", "")
	matrix := "sys/devices/virtual/mtty/mtty"
	tree.MediatedType(matrix, "mtty-2", "Dual port", 24)
	tree.Mediated(matrix, "12345678-1234-1234-1234-123456789abc", "mtty-2", "122")
}

// usbMachine: a hub with a stick and a phone behind it, and strings that no
// terminal should see.
func usbMachine(tree *sysfstest.Tree) {
	xhci := tree.PCI(sysfstest.PCI{Address: "0000:00:14.0", Class: 0x0c0330, Vendor: 0x8086, Device: 0xa1af, Driver: "xhci_hcd"})
	usb1 := tree.USB(xhci, "usb1", 1, 1, 0x1d6b, 0x0002, "480")
	tree.File(usb1+"/manufacturer", "Linux 6.12 xhci-hcd")
	tree.File(usb1+"/product", "xHCI Host Controller")
	tree.File(usb1+"/serial", "0000:00:14.0")
	tree.USB(xhci, "usb2", 2, 1, 0x1d6b, 0x0003, "20000")
	hub := tree.USB(usb1, "1-1", 1, 2, 0x0424, 0x2514, "480")
	tree.USB(usb1, "1-10", 1, 5, 0x046d, 0xc31c, "1.5")
	stick := tree.USB(hub, "1-1.4", 1, 4, 0x0951, 0x1666, "480")
	tree.Raw(stick+"/product", "Data\x1b[31m\tTrav\xffeler \u202e\n\n 3.0\n")
	tree.USB(hub, "1-1.2", 1, 3, 0x18d1, 0x4ee7, "unknown")
	tree.USB(hub, "1-1.10", 1, 6, 0x18d1, 0x4ee8, "12")
}

// disksMachine: what hangs behind controllers of all kinds.
func disksMachine(tree *sysfstest.Tree) {
	nvme := tree.PCI(sysfstest.PCI{Address: "0000:00:04.0", Class: 0x010802, Vendor: 0x144d, Device: 0xa808, Driver: "nvme"})
	tree.File(nvme+"/nvme/nvme0/nvme0n1/size", "1")
	tree.File(nvme+"/nvme/nvme0/nvme0c0n2/size", "1")
	tree.File(nvme+"/nvme/nvme0/ng0n1/dev", "1")
	virtio := tree.PCI(sysfstest.PCI{Address: "0000:00:05.0", Class: 0x010000, Vendor: 0x1af4, Device: 0x1042, Driver: "virtio-pci"})
	tree.File(virtio+"/virtio1/block/vda/size", "1")
	network := tree.PCI(sysfstest.PCI{Address: "0000:00:06.0", Class: 0x020000, Vendor: 0x1af4, Device: 0x1041, Driver: "virtio-pci"})
	tree.File(network+"/virtio2/net/eth1/mtu", "1500")
	tree.File(network+"/virtio2/net/eth0/mtu", "1500")
	sata := tree.PCI(sysfstest.PCI{Address: "0000:00:1f.2", Class: 0x010601, Vendor: 0x8086, Device: 0xa182, Driver: "ahci"})
	tree.File(sata+"/ata1/host0/target0:0:0/0:0:0:0/block/sda/size", "1")
	tree.File(sata+"/ata2/host1/target1:0:0/1:0:0:0/block/sr0/size", "1")
	sas := tree.PCI(sysfstest.PCI{Address: "0000:01:00.0", Class: 0x010700, Vendor: 0x1000, Device: 0x97, Driver: "mpt3sas"})
	tree.File(sas+"/host2/port-2:0/expander-2:0/port-2:0:1/end_device-2:0:1/target2:0:1/2:0:1:0/block/sdb/size", "1")
}
