package sysfs

import "github.com/vmlet/vmlet/sysfs/notation"

// A machine's description is made of these types of package notation, which is for programs that read no machine's files.
type (
	IDList       = notation.IDList
	PCIAddress   = notation.PCIAddress
	VendorDevice = notation.VendorDevice
)

// Matches reports whether the function is of that kind.
func (d PCIDevice) Matches(kind VendorDevice) bool {
	return VendorDevice{Vendor: d.Vendor, Device: d.Device} == kind
}

// Matches reports whether the device is of that kind.
func (d USBDevice) Matches(kind VendorDevice) bool {
	return VendorDevice{Vendor: d.Vendor, Device: d.Product} == kind
}
