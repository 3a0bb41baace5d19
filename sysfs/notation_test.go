package sysfs

import "testing"

func TestMatches(t *testing.T) {
	kind := VendorDevice{Vendor: 0x10de, Device: 0x1eb8}
	if !(PCIDevice{Vendor: 0x10de, Device: 0x1eb8}).Matches(kind) || (PCIDevice{Vendor: 0x10de, Device: 0x1eb9}).Matches(kind) {
		t.Error("a PCI device is not known by its numbers")
	}
	if !(USBDevice{Vendor: 0x10de, Product: 0x1eb8}).Matches(kind) || (USBDevice{Vendor: 0x10df, Product: 0x1eb8}).Matches(kind) {
		t.Error("a USB device is not known by its numbers")
	}
}

func TestClassNames(t *testing.T) {
	for class, want := range map[uint32]string{
		0x030000: "VGA controller", 0x010802: "NVMe controller", 0x010801: "non-volatile memory controller", 0x060400: "PCI bridge",
		0x060401: "PCI bridge", 0x02ff00: "network controller", 0: "", 0x770000: "",
	} {
		if got := pciClassName(class); got != want {
			t.Errorf("%06x: %q; want %q", class, got, want)
		}
	}
}

func TestLeavesDMA(t *testing.T) {
	for driver, want := range map[string]bool{
		"vfio-pci": true, "pci-stub": true, "pcieport": true, "mlx5_vfio_pci": true, "hisi-acc-vfio-pci": true, "vfio_ap": true,
		"": false, "nvidia": false, "shpchp": false, "myvfiodriver": false, "xen-pciback": false,
	} {
		if leavesDMA(driver, "") != want {
			t.Errorf("%q: %v", driver, !want)
		}
	}
	if !leavesDMA("made-for-it", "vfio3") {
		t.Error("a driver that has made a device of VFIO is one of it")
	}
}
