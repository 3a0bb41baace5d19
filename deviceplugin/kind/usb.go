package kind

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// usb makes a device of each set: one USB device for each of its selectors.
func (d *HostDevice) usb(host *sysfs.Host, _ []finder.Resource, ready []string) []deviceplugin.Device {
	var devices []deviceplugin.Device
	for _, set := range ready {
		var nodes []int
		var paths []string
		for _, name := range strings.Split(set, ",") {
			var bus, number int
			if _, err := fmt.Sscanf(name, "%d:%d", &bus, &number); err != nil {
				continue // Find makes no others
			}
			paths = append(paths, fmt.Sprintf("bus/usb/%03d/%03d", bus, number))
			if n := d.usbNode(host, bus); n >= 0 {
				nodes = append(nodes, n)
			}
		}
		id := strings.NewReplacer(":", "-", ",", "_").Replace(set)
		if len(id) > deviceplugin.MaxID {
			id = fmt.Sprintf("usb-%x", sha256.Sum256([]byte(set)))[:36]
		}
		devices = append(devices, deviceplugin.Device{
			ID: id, NUMANodes: ascending(nodes), Obstacle: d.obstacle(paths), Grant: d.grant(set, id, paths),
		})
	}
	return devices
}

// usbNode is the NUMA node of a bus: that of its controller, which its root hub's
// folder is in (/sys/bus/usb/devices/usb1 leads to .../0000:00:14.0/usb1). -1: it
// isn't told.
func (d *HostDevice) usbNode(host *sysfs.Host, bus int) int {
	target, err := os.Readlink(d.roots.SysPath("bus/usb/devices", fmt.Sprintf("usb%d", bus)))
	if err != nil {
		return -1
	}
	way := strings.Split(target, "/")
	for _, name := range slices.Backward(way) {
		address, err := notation.ParsePCIAddress(name)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(host.PCIDevices, func(f sysfs.PCIDevice) bool { return f.Address == address.String() })
		if i < 0 {
			return -1
		}
		return host.PCIDevices[i].Node
	}
	return -1
}
