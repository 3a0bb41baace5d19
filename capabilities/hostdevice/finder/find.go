// Package finder finds which of a machine's devices are those that an administrator permits, and whether a guest can be given
// them: PCI, mediated and USB devices.
package finder

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// Kind is what kind of device a resource stands for.
type Kind string

// The kinds, by the configuration's words.
const (
	KindPCI      Kind = "pci"
	KindMediated Kind = "mdev"
	KindUSB      Kind = "usb"
)

// Resource is a permitted resource and what of it this machine has.
type Resource struct {
	Name     string
	Kind     Kind
	External bool
	// Ready can be given to a guest: PCI addresses, UUIDs, or USB devices as
	// BUS:DEVICE, those of one resource joined by commas. Sorted.
	Ready []string
	// Obstacles are devices that match and can't be given, and why.
	Obstacles []Obstacle
}

// Obstacle is why a device can't be given to a guest.
type Obstacle struct {
	Device, Reason, Remedy string
}

// Find returns the permitted resources, sorted by name, with the devices that
// this machine has. A resource without devices has empty lists.
func Find(p hostdevice.Permitted, host *sysfs.Host) []Resource {
	f := finder{host: host, groups: groups(host), byName: make(map[string]*Resource)}
	for _, d := range p.PCI {
		f.pci(d, f.resource(d.ResourceName, KindPCI, d.External))
	}
	for _, d := range p.Mediated {
		f.mediated(d, f.resource(d.ResourceName, KindMediated, d.External))
	}
	for _, d := range p.USB {
		f.usb(d, f.resource(d.ResourceName, KindUSB, d.External))
	}
	var found []Resource
	for _, r := range f.byName {
		slices.Sort(r.Ready)
		r.Ready = slices.Compact(r.Ready)
		found = append(found, *r)
	}
	slices.SortFunc(found, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return found
}

type finder struct {
	host   *sysfs.Host
	groups map[int]sysfs.IOMMUGroup
	byName map[string]*Resource
}

// resource is that of a name: several selectors may share one.
func (f *finder) resource(name string, kind Kind, external bool) *Resource {
	r := f.byName[name]
	if r == nil {
		r = &Resource{Name: name, Kind: kind}
		f.byName[name] = r
	}
	r.External = r.External || external
	return r
}

func (f *finder) pci(selector hostdevice.PCI, r *Resource) {
	for _, d := range f.host.PCIDevices {
		if !means(selector, d) {
			continue
		}
		if reason, remedy := f.pciObstacle(d); reason != "" {
			r.Obstacles = append(r.Obstacles, Obstacle{d.Address, reason, remedy})
			continue
		}
		r.Ready = append(r.Ready, d.Address)
	}
}

// means reports whether a device is meant. What can't be read means none: Validate has said so.
func means(p hostdevice.PCI, d sysfs.PCIDevice) bool {
	if p.AddressSelector != "" {
		address, err := notation.ParsePCIAddress(p.AddressSelector)
		return err == nil && address.String() == d.Address
	}
	ids, err := notation.ParseVendorDevice(p.VendorSelector)
	return err == nil && d.Matches(ids)
}

// pciObstacle says what keeps a PCI device from a guest. A driver for VFIO,
// vfio-pci or one made for the device, gives it a vfio device.
func (f *finder) pciObstacle(d sysfs.PCIDevice) (reason, remedy string) {
	switch {
	case d.IOMMUGroup < 0:
		return "it is in no IOMMU group", "enable VT-d or AMD-Vi in firmware and boot with intel_iommu=on (AMD's is on by itself)"
	case d.Driver != "vfio-pci" && d.VFIODevice == "":
		driver := d.Driver
		if driver == "" {
			driver = "no driver"
		}
		return "it is bound to " + driver + ", not to vfio-pci",
			"bind it: driverctl set-override " + d.Address + " vfio-pci"
	case !f.groups[d.IOMMUGroup].Viable:
		return fmt.Sprintf("IOMMU group %d has devices that the host uses: %s", d.IOMMUGroup, strings.Join(f.groups[d.IOMMUGroup].Devices, ", ")),
			"bind all of them to vfio-pci"
	}
	return "", ""
}

func (f *finder) mediated(selector hostdevice.Mediated, r *Resource) {
	wanted := spaceless(selector.NameSelector)
	names := make(map[string]bool) // ids of the types meant
	for _, t := range f.host.MediatedDeviceTypes {
		if spaceless(t.Name) == wanted || t.ID == selector.NameSelector {
			names[t.ID] = true
		}
	}
	for _, d := range f.host.MediatedDevices {
		if !names[d.Type] && d.Type != selector.NameSelector {
			continue
		}
		if d.IOMMUGroup < 0 {
			reason, remedy := mediatedWithoutGroup()
			r.Obstacles = append(r.Obstacles, Obstacle{d.UUID, reason, remedy})
			continue
		}
		r.Ready = append(r.Ready, d.UUID)
	}
}

// spaceless is how KubeVirt compares the names of types.
func spaceless(name string) string { return strings.ReplaceAll(name, " ", "_") }

// usb puts devices together, one for each selector, for as long as there are
// some of all.
func (f *finder) usb(permitted hostdevice.USB, r *Resource) {
	taken := make(map[string]bool)
	for {
		var set []string
		for _, s := range permitted.Selectors {
			if d, ok := f.freeUSB(s, taken); ok {
				taken[d] = true
				set = append(set, d)
			}
		}
		if len(set) == 0 || len(set) < len(permitted.Selectors) {
			for _, d := range set {
				r.Obstacles = append(r.Obstacles, Obstacle{d, "others of its resource's selectors match nothing", "plug them in"})
			}
			return
		}
		r.Ready = append(r.Ready, strings.Join(set, ","))
	}
}

// freeUSB finds the first device that a selector means and that isn't taken.
func (f *finder) freeUSB(s hostdevice.USBSelector, taken map[string]bool) (string, bool) {
	ids, err := s.IDs()
	if err != nil {
		return "", false
	}
	for _, d := range f.host.USBDevices {
		name := fmt.Sprintf("%d:%d", d.Bus, d.Device)
		if d.Matches(ids) && d.Bus >= 0 && d.Device >= 0 && !taken[name] {
			return name, true
		}
	}
	return "", false
}
