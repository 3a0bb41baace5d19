package sysfstest

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// PCI describes a PCI function. What is empty or 0 is written as such, unless said.
type PCI struct {
	// Address is the kernel's: "0000:00:1f.2".
	Address string
	// Parent is the address of a bridge that has been written; empty: a root bus.
	Parent         string
	Class          uint32
	Vendor, Device uint16
	// Driver and Group ("12"); empty: none, and no link.
	Driver, Group string
	// Node is numa_node, CPUs local_cpulist.
	Node int
	CPUs string
	// Reset methods; empty: no file.
	Reset string
}

// PCI writes a function and returns its folder, in which more may be written.
func (t *Tree) PCI(f PCI) string {
	t.t.Helper()
	domain, bus, _ := strings.Cut(f.Address, ":")
	folder := path.Join("sys/devices/pci"+domain+":"+bus[:2], f.Address)
	if f.Parent != "" {
		folder = path.Join(t.target("sys/bus/pci/devices/"+f.Parent), f.Address)
	}
	t.Link("sys/bus/pci/devices/"+f.Address, folder)
	t.Printf(folder+"/class", "0x%06x", f.Class)
	t.Printf(folder+"/vendor", "0x%04x", f.Vendor)
	t.Printf(folder+"/device", "0x%04x", f.Device)
	t.Printf(folder+"/subsystem_vendor", "0x%04x", f.Vendor)
	t.Printf(folder+"/subsystem_device", "0x%04x", 1)
	t.File(folder+"/revision", "0x01")
	t.Printf(folder+"/numa_node", "%d", f.Node)
	t.File(folder+"/local_cpulist", f.CPUs)
	if f.Reset != "" {
		t.File(folder+"/reset_method", f.Reset)
	}
	if f.Driver != "" {
		t.Folder("sys/bus/pci/drivers/" + f.Driver)
		t.Link(folder+"/driver", "sys/bus/pci/drivers/"+f.Driver)
	}
	if f.Group != "" {
		t.Member(f.Group, folder)
	}
	return folder
}

// target returns the path below Root that a link leads to.
func (t *Tree) target(link string) string {
	t.t.Helper()
	target, err := os.Readlink(t.Path(link))
	if err != nil {
		t.t.Fatal(err)
	}
	return path.Join(path.Dir(link), target)
}

// Member puts a device into an IOMMU group, of type DMA-FQ.
func (t *Tree) Member(group, folder string) {
	t.t.Helper()
	groupFolder := "sys/kernel/iommu_groups/" + group
	t.File(groupFolder+"/type", "DMA-FQ")
	t.Link(groupFolder+"/devices/"+path.Base(folder), folder)
	t.Link(folder+"/iommu_group", groupFolder)
}

// VirtualFunctions makes functions that have been written virtual ones of
// another, which can have total.
func (t *Tree) VirtualFunctions(physical string, total int, virtual ...string) {
	t.t.Helper()
	folder := t.target("sys/bus/pci/devices/" + physical)
	t.Printf(folder+"/sriov_totalvfs", "%d", total)
	t.Printf(folder+"/sriov_numvfs", "%d", len(virtual))
	for i, address := range virtual {
		virtualFolder := t.target("sys/bus/pci/devices/" + address)
		t.Link(fmt.Sprintf("%s/virtfn%d", folder, i), virtualFolder)
		t.Link(virtualFolder+"/physfn", folder)
	}
}

// MediatedType lets a device offer a type of mediated devices.
func (t *Tree) MediatedType(parent, id, name string, available int) {
	t.t.Helper()
	t.mediator(parent)
	folder := parent + "/mdev_supported_types/" + id
	t.File(folder+"/name", name)
	t.File(folder+"/device_api", "vfio-pci")
	t.File(folder+"/description", "num_heads=4, frl_config=60, framebuffer=1024M")
	t.Printf(folder+"/available_instances", "%d", available)
}

func (t *Tree) mediator(parent string) {
	link := "sys/class/mdev_bus/" + path.Base(parent)
	if _, err := os.Lstat(t.Path(link)); err != nil {
		t.Link(link, parent)
	}
}

// Mediated writes a mediated device of a type that its parent offers.
func (t *Tree) Mediated(parent, uuid, kind, group string) string {
	t.t.Helper()
	folder := parent + "/" + uuid
	t.Link("sys/bus/mdev/devices/"+uuid, folder)
	t.Link(folder+"/mdev_type", parent+"/mdev_supported_types/"+kind)
	t.Link(folder+"/driver", "sys/bus/mdev/drivers/vfio_mdev")
	if group != "" {
		t.Member(group, folder)
	}
	return folder
}

// USB writes a USB device or root hub by the kernel's name, and its first
// interface, below a controller's folder. It returns its own folder.
func (t *Tree) USB(controller, name string, bus, device int, vendor, product uint16, speed string) string {
	t.t.Helper()
	folder := controller + "/" + name
	t.Link("sys/bus/usb/devices/"+name, folder)
	t.Printf(folder+"/busnum", "%d", bus)
	t.Printf(folder+"/devnum", "%d", device)
	t.Printf(folder+"/idVendor", "%04x", vendor)
	t.Printf(folder+"/idProduct", "%04x", product)
	t.File(folder+"/bDeviceClass", map[bool]string{true: "09", false: "00"}[strings.HasPrefix(name, "usb")])
	t.File(folder+"/speed", speed)
	t.Link(folder+"/driver", "sys/bus/usb/drivers/usb")
	side := name + ":1.0"
	if strings.HasPrefix(name, "usb") {
		side = fmt.Sprintf("%d-0:1.0", bus)
	}
	t.File(folder+"/"+side+"/bInterfaceClass", "03")
	t.Link("sys/bus/usb/devices/"+side, folder+"/"+side)
	return folder
}
