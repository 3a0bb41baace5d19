// Package probe is the half of the sample that needs a node.
package probe

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/hypervisor/sample"
	"github.com/vmlet/vmlet/sysfs"
)

// Local is the Sample of the node whose files are below Roots.
type Local struct {
	sample.Sample
	Roots sysfs.Roots
}

// Device is its node.
func (l Local) Device() string { return l.Roots.DevPath("sample") }

// Check opens it.
func (l Local) Check(ctx context.Context) hypervisor.Status {
	return device.Bounded(ctx, l.Device(), func(context.Context) hypervisor.Status {
		fd, fail := device.Open(l.Device(), func() string { return "load the sample module (modprobe sample)" })
		if fail != nil {
			return fail.Status()
		}
		unix.Close(fd)
		return hypervisor.Status{Level: hypervisor.Works}
	})
}

// DependsOn is its device.
func (Local) DependsOn() hypervisor.Dependencies {
	return hypervisor.Dependencies{Devices: []hypervisor.DeviceNode{{Name: "sample", Path: "sample", Remedy: "load the sample module (modprobe sample)"}}}
}
