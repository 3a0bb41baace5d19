package notation

import (
	"fmt"
	"strings"
)

// VendorDevice is what kind of device one is: its vendor's and its own number,
// as PCI-SIG or USB-IF have given them out. Configurations choose devices by it.
type VendorDevice struct {
	Vendor, Device uint16
}

// ParseVendorDevice reads "10de:1eb8": four hex digits each, in either case, as
// lspci and lsusb print them and KubeVirt's selectors have them.
func ParseVendorDevice(text string) (VendorDevice, error) {
	vendorText, deviceText, _ := strings.Cut(text, ":")
	vendor, ok1 := ParseHex(vendorText, 16)
	device, ok2 := ParseHex(deviceText, 16)
	if !ok1 || !ok2 || len(vendorText) != 4 || len(deviceText) != 4 {
		return VendorDevice{}, fmt.Errorf("%.40q is not a vendor and a device: write four hex digits each, such as \"10de:1eb8\"", text)
	}
	return VendorDevice{uint16(vendor), uint16(device)}, nil
}

// String returns what ParseVendorDevice reads, in lower case.
func (v VendorDevice) String() string { return fmt.Sprintf("%04x:%04x", v.Vendor, v.Device) }
