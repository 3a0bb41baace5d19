package kind

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/sysfs"
)

// pci makes a device of each IOMMU group: it can only be given as a whole. The
// group belongs to the resource of its first permitted function; others of its
// functions go with it, whatever resource they are permitted under, because two
// containers can't have parts of one group.
func (d *HostDevice) pci(host *sysfs.Host, all []finder.Resource, _ []string) []deviceplugin.Device {
	owner := make(map[string]finder.Resource) // by address
	for _, r := range all {
		for _, address := range r.Ready {
			if _, taken := owner[address]; r.Kind == finder.KindPCI && !taken {
				owner[address] = r
			}
		}
	}
	groups := make(map[int][]sysfs.PCIDevice) // permitted functions, by group
	nodes := make(map[int][]int)              // NUMA nodes of all functions, by group
	for _, f := range host.PCIDevices {       // sorted by address
		if _, permitted := owner[f.Address]; permitted {
			groups[f.IOMMUGroup] = append(groups[f.IOMMUGroup], f)
		}
		if f.Node >= 0 && f.IOMMUGroup >= 0 {
			nodes[f.IOMMUGroup] = append(nodes[f.IOMMUGroup], f.Node)
		}
	}
	var devices []deviceplugin.Device
	for id, functions := range groups {
		first := functions[0]
		if r := owner[first.Address]; r.Name != d.resource || r.External {
			continue
		}
		var addresses, cdevs []string
		for _, f := range functions {
			addresses, cdevs = append(addresses, f.Address), append(cdevs, f.VFIODevice)
		}
		paths := finder.Nodes(host, id, cdevs)
		devices = append(devices, deviceplugin.Device{
			ID: strconv.Itoa(id), NUMANodes: ascending(nodes[id]), Near: near(first),
			Obstacle: d.obstacle(paths), Grant: d.grant(strings.Join(addresses, ","), first.Address, paths),
		})
	}
	slices.SortFunc(devices, func(a, b deviceplugin.Device) int { return strings.Compare(a.Grant.Value, b.Grant.Value) })
	return devices
}

// near is the bridge that a function is attached to, or the function that it is a
// virtual one of: devices behind one switch reach one another without the CPU.
func near(f sysfs.PCIDevice) string {
	if f.PhysicalFunction != "" {
		return f.PhysicalFunction
	}
	return f.Parent
}

// mediated makes a device of each mediated one: each is in a group of its own.
func (d *HostDevice) mediated(host *sysfs.Host, _ []finder.Resource, ready []string) []deviceplugin.Device {
	var devices []deviceplugin.Device
	for _, m := range host.MediatedDevices {
		if !slices.Contains(ready, m.UUID) {
			continue
		}
		paths := finder.Nodes(host, m.IOMMUGroup, []string{m.VFIODevice})
		var nodes []int
		if m.Node >= 0 {
			nodes = []int{m.Node}
		}
		devices = append(devices, deviceplugin.Device{
			ID: m.UUID, NUMANodes: nodes, Near: m.Parent,
			Obstacle: d.obstacle(paths), Grant: d.grant(m.UUID, m.UUID, paths),
		})
	}
	return devices
}
