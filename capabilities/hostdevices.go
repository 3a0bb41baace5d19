package capabilities

import (
	"github.com/vmlet/vmlet/capabilities/hostdevice"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/sysfs"
)

// hostDevices is what of the permitted devices the machine has.
func hostDevices(permitted hostdevice.Permitted, h *sysfs.Host) []*vmletv1.HostDeviceResource {
	var out []*vmletv1.HostDeviceResource
	for _, r := range permitted.Find(h) {
		resource := &vmletv1.HostDeviceResource{Resource: r.Name, Kind: string(r.Kind), External: r.External, Devices: r.Ready}
		for _, o := range r.Obstacles {
			resource.Obstacles = append(resource.Obstacles, &vmletv1.HostDeviceObstacle{Device: o.Device, Reason: o.Reason, Remedy: o.Remedy})
		}
		out = append(out, resource)
	}
	return out
}
