// Package hostdevice says which of a machine's PCI, mediated and USB devices an
// administrator permits to be given to guests, and under which resource names.
// The configuration is written as KubeVirt's permittedHostDevices is. It reads nothing of a machine; finder, below it, does.
package hostdevice

import (
	"fmt"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/resourcename"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// Permitted are the devices that may be given to guests.
type Permitted struct {
	PCI      []PCI      `yaml:"pciHostDevices"`
	Mediated []Mediated `yaml:"mediatedDevices"`
	USB      []USB      `yaml:"usb"`
}

// PCI permits PCI devices: by what they are, or by where they are.
type PCI struct {
	// VendorSelector is VENDOR:DEVICE in hexadecimal, "10DE:1EB8".
	VendorSelector string `yaml:"pciVendorSelector"`
	// AddressSelector is an address, "0000:65:00.0". It is vmlet's own; one of the two is set.
	AddressSelector string `yaml:"pciAddressSelector"`
	// ResourceName is what pods ask for: "nvidia.com/TU104GL_Tesla_T4".
	ResourceName string `yaml:"resourceName"`
	// External: another device plugin offers it, vmlet only lets guests have it.
	External bool `yaml:"externalResourceProvider"`
}

// Mediated permits mediated devices of a type.
type Mediated struct {
	// NameSelector is the type's name, "GRID T4-1Q", or its id, "nvidia-222".
	NameSelector string `yaml:"mdevNameSelector"`
	ResourceName string `yaml:"resourceName"`
	External     bool   `yaml:"externalResourceProvider"`
}

// USB permits USB devices. A resource is one device for each selector.
type USB struct {
	ResourceName string        `yaml:"resourceName"`
	Selectors    []USBSelector `yaml:"selectors"`
	External     bool          `yaml:"externalResourceProvider"`
}

// USBSelector is a device's ids in hexadecimal, four digits at most: "46f4", "0001".
type USBSelector struct {
	Vendor  string `yaml:"vendor"`
	Product string `yaml:"product"`
}

// IDs are those of the device that is meant. KubeVirt takes fewer digits, too.
func (s USBSelector) IDs() (notation.VendorDevice, error) {
	padded := func(id string) string { return strings.Repeat("0", max(0, min(3, 4-len(id)))) + id }
	return notation.ParseVendorDevice(padded(s.Vendor) + ":" + padded(s.Product))
}

// Validate reports every fault; keys are below "permittedHostDevices".
func (p Permitted) Validate(fault func(key, format string, args ...any)) {
	v := validator{fault: fault, kinds: make(map[string]string)}
	for i, d := range p.PCI {
		key := fmt.Sprintf("permittedHostDevices.pciHostDevices[%d]", i)
		v.resource(key, d.ResourceName, "pciHostDevices")
		_, errIDs := notation.ParseVendorDevice(d.VendorSelector)
		_, errAddress := notation.ParsePCIAddress(d.AddressSelector)
		switch {
		case (d.VendorSelector == "") == (d.AddressSelector == ""):
			fault(key, "want one of pciVendorSelector (10DE:1EB8) and pciAddressSelector (0000:65:00.0)")
		case d.VendorSelector != "" && errIDs != nil:
			fault(key+".pciVendorSelector", "%v, as lspci -n shows", errIDs)
		case d.AddressSelector != "" && errAddress != nil:
			fault(key+".pciAddressSelector", "%v, as lspci -D shows", errAddress)
		}
	}
	for i, d := range p.Mediated {
		key := fmt.Sprintf("permittedHostDevices.mediatedDevices[%d]", i)
		v.resource(key, d.ResourceName, "mediatedDevices")
		if d.NameSelector == "" {
			fault(key+".mdevNameSelector", "is missing: want the name or the id of a type, as /sys/class/mdev_bus/*/mdev_supported_types has them")
		}
	}
	for i, d := range p.USB {
		key := fmt.Sprintf("permittedHostDevices.usb[%d]", i)
		v.resource(key, d.ResourceName, "usb")
		if len(d.Selectors) == 0 {
			fault(key+".selectors", "is missing: want vendor and product of at least one device")
		}
		for j, s := range d.Selectors {
			if _, err := s.IDs(); err != nil {
				fault(fmt.Sprintf("%s.selectors[%d]", key, j), "vendor and product: %v, as lsusb shows, in quotes", err)
			}
		}
	}
}

type validator struct {
	fault func(key, format string, args ...any)
	kinds map[string]string // of a resource's name
}

func (v *validator) resource(key, name, kind string) {
	key += ".resourceName"
	err := resourcename.Check(name)
	other := v.kinds[name]
	switch {
	case err != nil:
		v.fault(key, "%v", err)
	case strings.HasPrefix(name, contract.DeviceDomain+"/"):
		v.fault(key, "%q: %s is for the node's own devices (kvm, tun, ...): take another domain", name, contract.DeviceDomain)
	case other != "" && other != kind:
		v.fault(key, "%q is a resource of %s too: a resource is of one kind", name, other)
	}
	v.kinds[name] = kind
}
