package finder

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// Assignment is what a VMM needs to hand a device of the host over to its guest.
type Assignment struct {
	// Group is the IOMMU group, which only one VMM can have.
	Group int
	// Nodes are the device nodes that it opens, below /dev.
	Nodes []string
}

// AssignPCI finds a PCI device by its address. An obstacle says why it can't be
// handed over, and what to do.
func AssignPCI(host *sysfs.Host, address string) (Assignment, *Obstacle) {
	i := slices.IndexFunc(host.PCIDevices, func(d sysfs.PCIDevice) bool { return d.Address == address })
	if i < 0 {
		return Assignment{}, &Obstacle{Device: address, Reason: "this node has no such PCI device", Remedy: "look at lspci -D, or vmlet probe"}
	}
	d := host.PCIDevices[i]
	f := finder{host: host, groups: groups(host)}
	if reason, remedy := f.pciObstacle(d); reason != "" {
		return Assignment{}, &Obstacle{Device: address, Reason: reason, Remedy: remedy}
	}
	return assign(host, address, d.IOMMUGroup)
}

// AssignMediated finds a mediated device by its UUID.
func AssignMediated(host *sysfs.Host, uuid string) (Assignment, *Obstacle) {
	i := slices.IndexFunc(host.MediatedDevices, func(d sysfs.MediatedDevice) bool { return d.UUID == uuid })
	switch {
	case i < 0:
		return Assignment{}, &Obstacle{Device: uuid, Reason: "this node has no such mediated device", Remedy: "make it (mdevctl start), or look at vmlet probe"}
	case host.MediatedDevices[i].IOMMUGroup < 0:
		reason, remedy := mediatedWithoutGroup()
		return Assignment{}, &Obstacle{Device: uuid, Reason: reason, Remedy: remedy}
	}
	return assign(host, uuid, host.MediatedDevices[i].IOMMUGroup)
}

// assign wants the node of the group: VMMs open that, and not the device's own.
func assign(host *sysfs.Host, device string, group int) (Assignment, *Obstacle) {
	if !slices.Contains(host.VFIO.Groups, strconv.Itoa(group)) {
		return Assignment{}, &Obstacle{
			Device: device, Reason: fmt.Sprintf("there is no /dev/vfio/%d", group),
			Remedy: "load vfio-pci (modprobe vfio-pci) on a kernel with CONFIG_VFIO_GROUP",
		}
	}
	return Assignment{Group: group, Nodes: Nodes(host, group, nil)}, nil
}

// Nodes are the device nodes of a group and of its devices, by these names in
// vfio-dev, below /dev. A kernel may have nodes of the devices alone
// (CONFIG_VFIO_GROUP), which are used with /dev/iommu.
func Nodes(host *sysfs.Host, group int, devices []string) []string {
	var paths []string
	for _, c := range devices {
		if c != "" {
			paths = append(paths, "vfio/devices/"+c)
		}
	}
	if len(paths) > 0 && len(paths) == len(devices) && !slices.Contains(host.VFIO.Groups, strconv.Itoa(group)) {
		return paths
	}
	return append([]string{"vfio/vfio", "vfio/" + strconv.Itoa(group)}, paths...)
}

func groups(host *sysfs.Host) map[int]sysfs.IOMMUGroup {
	out := make(map[int]sysfs.IOMMUGroup)
	for _, g := range host.IOMMUGroups {
		out[g.ID] = g
	}
	return out
}

// mediatedWithoutGroup is why such a device can't be given, and what to do.
func mediatedWithoutGroup() (reason, remedy string) {
	return "it is in no IOMMU group", "load vfio_mdev or the driver that made it"
}

// String is for messages.
func (o *Obstacle) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", o.Device, o.Reason, o.Remedy), ": ")
}
