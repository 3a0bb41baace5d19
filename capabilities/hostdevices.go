package capabilities

import (
	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
)

// hostDevices is what of the permitted devices the machine has.
func hostDevices(permitted hostdevice.Permitted, h *sysfs.Host) []*capabilitiesv1.HostDeviceResource {
	var out []*capabilitiesv1.HostDeviceResource
	for _, r := range finder.Find(permitted, h) {
		resource := &capabilitiesv1.HostDeviceResource{Resource: r.Name, Kind: string(r.Kind), External: r.External, Devices: r.Ready}
		for _, o := range r.Obstacles {
			resource.Obstacles = append(resource.Obstacles, &capabilitiesv1.HostDeviceObstacle{Device: o.Device, Reason: o.Reason, Remedy: o.Remedy})
		}
		out = append(out, resource)
	}
	return out
}
