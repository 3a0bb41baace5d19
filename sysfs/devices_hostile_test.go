package sysfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

// TestDeviceBounds: a tree with more devices than there can be, all of them links
// to one folder full of names, costs notes and neither hours nor memory.
func TestDeviceBounds(t *testing.T) {
	tree := twoNodes(t)
	full := tree.PCI(sysfstest.PCI{Address: "0000:00:00.0", Class: 0x060400, Vendor: 1, Device: 1})
	for i := range 400 {
		tree.Folder(fmt.Sprintf("%s/%04x:00:01.0", full, i+1))
	}
	names := make([]string, maxDevices+10)
	for i := range names {
		names[i] = fmt.Sprintf("%04x:%02x:01.0", i>>8, i&255)
		if err := os.Symlink("0000:00:00.0", tree.Path("sys/bus/pci/devices/"+names[i])); err != nil {
			t.Fatal(err)
		}
	}
	h := Read(rootsOf(tree))
	checkReferences(t, h)
	if len(h.PCIDevices) == 0 || len(h.PCIDevices) > maxDevices {
		t.Errorf("%d devices", len(h.PCIDevices))
	}
	for _, want := range []string{"more than 16384", "entries together"} {
		if !slices.ContainsFunc(h.Notes, func(n Note) bool { return strings.Contains(n.Message, want) }) {
			t.Errorf("no note says %q", want)
		}
	}
}

// TestDeepBridges: bridges below one another without end.
func TestDeepBridges(t *testing.T) {
	tree := twoNodes(t)
	for i := range maxBridges + 40 {
		tree.Folder(fmt.Sprintf("sys/bus/pci/devices/%04x:00:00.0/%04x:00:00.0", i, i+1))
	}
	h := Read(rootsOf(tree))
	checkReferences(t, h)
	roots := 0
	for _, d := range h.PCIDevices {
		if d.Parent == "" {
			roots++
		}
	}
	if roots != 2 {
		t.Errorf("%d devices without a parent; one chain is cut once", roots)
	}
}

// TestLinksOutOfTheRoot: what a link out of the tree leads to is not read.
func TestLinksOutOfTheRoot(t *testing.T) {
	tree := twoNodes(t)
	folder := tree.PCI(sysfstest.PCI{Address: "0000:00:00.0", Class: 0x020000, Vendor: 0x8086, Device: 1})
	secret := filepath.Join(t.TempDir(), "vendor")
	if err := os.WriteFile(secret, []byte("0x1234\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree.Remove(folder + "/vendor")
	tree.RawLink(folder+"/vendor", secret)
	tree.RawLink(folder+"/net", filepath.Dir(secret))
	h := Read(rootsOf(tree))
	if len(h.PCIDevices) != 1 || h.PCIDevices[0].Vendor != 0 || len(h.PCIDevices[0].Interfaces) != 0 {
		t.Errorf("%+v", h.PCIDevices)
	}
	if len(h.Notes) != 2 {
		t.Errorf("notes: %v", h.Notes)
	}
}

// deviceFiles are files and links that the fuzzer writes over.
func deviceFiles() []string {
	const pci, mdev, usb = "sys/bus/pci/devices/0000:86:00.0/", "sys/bus/mdev/devices/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001/", "sys/bus/usb/devices/1-1.4/"
	return []string{
		pci + "class", pci + "vendor", pci + "revision", pci + "numa_node", pci + "local_cpulist", pci + "reset_method", pci + "sriov_totalvfs",
		pci + "driver", pci + "iommu_group", pci + "physfn", pci + "virtfn0", pci + "mdev_supported_types/nvidia-222/available_instances",
		pci + "mdev_supported_types/nvidia-222/description", mdev + "mdev_type", mdev + "iommu_group", usb + "busnum", usb + "idVendor",
		usb + "speed", usb + "product", "sys/kernel/iommu_groups/40/type", "sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
	}
}

// FuzzDeviceFiles puts any content into any file of devices, and any target into
// its link: what is read holds together, and its JSON can be written.
func FuzzDeviceFiles(f *testing.F) {
	for i := range deviceFiles() {
		f.Add(uint8(i), false, "0x10de\n")
		f.Add(uint8(i), true, "../../0000:86:00.0")
		f.Add(uint8(i), true, "121")
	}
	tree := sysfstest.Machine{NoNodes: true, Caches: []sysfstest.Cache{}}.Write(f)
	mdevMachine(tree)
	usbMachine(tree)
	tree.File("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N")
	f.Fuzz(func(t *testing.T, file uint8, link bool, content string) {
		files := deviceFiles()
		path := tree.Path(files[int(file)%len(files)])
		old, isLink := restoreLater(t, path)
		defer putBack(t, path, old, isLink)
		if link && (content == "" || len(content) > 4000 || strings.ContainsRune(content, 0)) {
			t.Skip("no link can have this")
		}
		if err := put(path, content, link); err != nil {
			t.Skip(err)
		}
		h := Read(rootsOf(tree))
		checkReferences(t, h)
		if _, err := jsonOf(h); err != nil {
			t.Error(err)
		}
	})
}

// restoreLater returns what is at a path, to be put back.
func restoreLater(t *testing.T, path string) (content string, isLink bool) {
	t.Helper()
	if target, err := os.Readlink(path); err == nil {
		return target, true
	}
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(old), false
}

func putBack(t *testing.T, path, content string, isLink bool) {
	t.Helper()
	if content == "" {
		os.Remove(path)
		return
	}
	if err := put(path, content, isLink); err != nil {
		t.Fatal(err)
	}
}

func put(path, content string, link bool) error {
	os.Remove(path)
	if link {
		return os.Symlink(content, path)
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// FuzzPrintable: what a device says can be printed, and is bounded.
func FuzzPrintable(f *testing.F) {
	f.Add("Data Traveler")
	f.Add("\x1b[2J \xff\u202e\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := printable(text)
		if len(got) > maxSaying {
			t.Errorf("%d bytes", len(got))
		}
		if strings.ContainsFunc(got, func(c rune) bool { return !strconv.IsPrint(c) }) || strings.Contains(got, "  ") {
			t.Errorf("%q", got)
		}
	})
}

// FuzzDeviceNames: whatever a folder's entry is called, it is known for one kind
// or none.
func FuzzDeviceNames(f *testing.F) {
	for _, name := range []string{"1-1.4", "usb1", "1-0:1.0", "nvme0c1n2", "nvme0n1", "0:0:1:0", "virtio0", "noiommu-3", "12", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if path := usbPath(name); path != nil && isUSBInterface(name) {
			t.Errorf("%q is a USB device, %v, and an interface", name, path)
		}
		if isNamespace(name) && !isNamespace(namespaceDisk(name)) {
			t.Errorf("%q: the disk is said to be %q", name, namespaceDisk(name))
		}
		if (isUUID(name) || isSCSIUnit(name) || isHolder(name) || groupNumber(name) >= 0) && strings.Contains(name, "/") {
			t.Errorf("%q is a name", name)
		}
	})
}

// BenchmarkDevices reads a machine with 2,000 PCI functions, virtual ones and
// their groups included.
func BenchmarkDevices(b *testing.B) {
	tree := sysfstest.Machine{Packages: 2, Cores: 2}.SplitNodes(2, 1<<30).Write(b)
	manyFunctions(tree)
	roots := rootsOf(tree)
	b.ReportAllocs()
	for b.Loop() {
		if h := Read(roots); len(h.PCIDevices) != 2016 || len(h.Notes) > 0 {
			b.Fatal(len(h.PCIDevices), h.Notes)
		}
	}
}

// manyFunctions writes 16 cards with 125 virtual functions each, with as many
// files in each folder as Linux has.
func manyFunctions(tree *sysfstest.Tree) {
	group := 0
	write := func(address, driver string) {
		folder := tree.PCI(sysfstest.PCI{Address: address, Class: 0x020000, Vendor: 0x15b3, Device: 0x101e, Driver: driver,
			Group: strconv.Itoa(group), CPUs: "0-1", Reset: "flr bus"})
		for _, name := range []string{"ari_enabled", "broken_parity_status", "config", "consistent_dma_mask_bits", "d3cold_allowed", "dma_mask_bits",
			"driver_override", "enable", "irq", "local_cpus", "modalias", "msi_bus", "power_state", "remove", "rescan", "reset", "resource", "resource0", "uevent"} {
			tree.File(folder+"/"+name, "")
		}
		group++
	}
	for card := range 16 {
		physical := fmt.Sprintf("0000:%02x:00.0", card)
		write(physical, "mlx5_core")
		var virtual []string
		for i := range 125 {
			address := fmt.Sprintf("0000:%02x:%02x.%d", card, (i+8)/8, (i+8)%8)
			write(address, "vfio-pci")
			virtual = append(virtual, address)
		}
		tree.VirtualFunctions(physical, 127, virtual...)
	}
}
