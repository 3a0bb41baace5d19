package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
)

// inSerial says whether KubeVirt takes a character in the serial number of a disk. How many
// a disk has room for is its VMM's to say.
func inSerial(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_.+-", c)
}

func disks(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	seen := make(map[string]bool)
	for i, d := range s.Domain.Devices.Disks {
		disk := at.Index(i)
		hasVolume := slices.ContainsFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name })
		switch {
		case seen[d.Name]:
			faults = append(faults, field.Duplicate(disk.Child("name"), short(d.Name)))
		case !hasVolume && d.CDROM != nil:
			faults = append(faults, field.Invalid(disk.Child("name"), short(d.Name), "spec.volumes has no volume of this name, and empty CD-ROM drives are not supported yet"))
		case !hasVolume:
			faults = append(faults, field.Invalid(disk.Child("name"), short(d.Name), "spec.volumes has no volume of this name: add it or remove the disk"))
		}
		seen[d.Name] = true
		if d.Shareable != nil && *d.Shareable && hasVolume && !slices.ContainsFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name && convert.Shares(&d, &v) }) {
			faults = append(faults, field.Forbidden(disk.Child("shareable"), "VMs share a disk on a claim: leave it out, or use a persistentVolumeClaim or dataVolume"))
		}
		if d.CDROM != nil && d.CDROM.Bus == kubevirtv1.DiskBusVirtio {
			faults = append(faults, field.NotSupported(disk.Child("cdrom", "bus"), d.CDROM.Bus, []kubevirtv1.DiskBus{kubevirtv1.DiskBusSATA, kubevirtv1.DiskBusSCSI, kubevirtv1.DiskBusUSB}))
		}
		if len(d.Serial) > maxSerial {
			faults = append(faults, field.TooLong(disk.Child("serial"), "", maxSerial))
		} else if strings.ContainsFunc(d.Serial, func(c rune) bool { return !inSerial(c) }) {
			faults = append(faults, field.Invalid(disk.Child("serial"), short(d.Serial), "want letters, digits, '-', '_', '.' and '+'"))
		}
	}
	return faults
}

func diskBus(d kubevirtv1.Disk) kubevirtv1.DiskBus {
	switch {
	case d.Disk != nil:
		return d.Disk.Bus
	case d.CDROM != nil:
		return d.CDROM.Bus
	}
	return ""
}

// bootOrder wants no two devices at one place.
func bootOrder(s *kubevirtv1.VirtualMachineInstanceSpec, devices *field.Path) (faults field.ErrorList) {
	taken := make(map[int64]*field.Path)
	check := func(order *int64, device *field.Path) {
		if order == nil {
			return
		}
		if other, twice := taken[*order]; twice {
			faults = append(faults, field.Invalid(device.Child("bootOrder"), *order, "it is the place of "+other.String()+", too"))
			return
		}
		taken[*order] = device
	}
	for i, d := range s.Domain.Devices.Disks {
		check(d.BootOrder, devices.Child("disks").Index(i))
	}
	for i, n := range s.Domain.Devices.Interfaces {
		check(n.BootOrder, devices.Child("interfaces").Index(i))
	}
	return faults
}

// otherDevices checks inputs, the graphics device and the watchdog.
func otherDevices(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	d, seen := s.Domain.Devices, make(map[string]bool)
	for i, input := range d.Inputs {
		name := at.Child("inputs").Index(i).Child("name")
		if input.Name == "" {
			faults = append(faults, field.Required(name, fmt.Sprintf("name the %s", input.Type)))
		} else if seen[input.Name] {
			faults = append(faults, field.Duplicate(name, short(input.Name)))
		}
		seen[input.Name] = true
	}
	if d.Watchdog != nil && d.Watchdog.Name == "" {
		faults = append(faults, field.Required(at.Child("watchdog", "name"), "name the watchdog"))
	}
	if d.Video == nil {
		return faults
	}
	faults = append(faults, oneOf(d.Video.Type, []string{"virtio", "vga", "bochs", "cirrus", "ramfb"}, at.Child("video", "type"))...)
	if graphics := d.AutoattachGraphicsDevice; graphics != nil && !*graphics {
		faults = append(faults, field.Forbidden(at.Child("video"), "autoattachGraphicsDevice is false: leave one of the two out"))
	}
	return faults
}
