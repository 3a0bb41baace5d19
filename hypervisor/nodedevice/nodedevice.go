// Package nodedevice finds out which of the device nodes that guests and VMMs may
// need work: by opening each, and by a question that changes nothing where its
// driver answers one.
package nodedevice

import (
	"context"
	"sync"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// Discover tries the devices under the root, in a fixed order. It returns within seconds, sooner when ctx ends; a device that
// doesn't answer by then is unusable.
func Discover(ctx context.Context, roots sysfs.Roots) []*capabilitiesv1.DeviceCapability {
	return discover(ctx, roots, device.System{})
}

func discover(ctx context.Context, roots sysfs.Roots, kernel device.Kernel) []*capabilitiesv1.DeviceCapability {
	nodes := nodes()
	found := make([]*capabilitiesv1.DeviceCapability, len(nodes))
	// Each by itself: one that hangs costs the others nothing.
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			path := roots.DevPath(n.path)
			found[i] = n.capability(ctx, kernel, path)
		})
	}
	all.Wait()
	return found
}

// Paths are the device nodes that Discover tries, whether they are there or not.
func Paths(roots sysfs.Roots) []string {
	var paths []string
	for _, n := range nodes() {
		paths = append(paths, roots.DevPath(n.path))
	}
	return paths
}

func (n node) capability(ctx context.Context, kernel device.Kernel, path string) *capabilitiesv1.DeviceCapability {
	o, err := device.Within(ctx, func(context.Context) outcome { return n.try(kernel, path) })
	if err != nil {
		o = outcome{state: capabilitiesv1.State_STATE_UNUSABLE, fail: device.NoAnswer(path, err)}
	}
	c := &capabilitiesv1.DeviceCapability{Name: n.name, Path: path, State: o.state}
	if o.fail != nil {
		c.Reason, c.Remedy, c.Errno = o.fail.Reason, o.fail.Remedy, device.ErrnoName(o.fail.Errno)
	}
	return c
}

// node is a device node, and a question that its driver answers and no other one does.
type node struct {
	// path below /dev.
	name, path string
	// remedy for one that isn't there.
	remedy string
	// The question: its name, request and how long its answer is; without an answer's length it takes no argument. No question: it
	// is only opened.
	ioctl   string
	request uintptr
	size    int
}

// nodes are what vmlet's guests may need. The questions only read: TUNGETFEATURES (linux/if_tun.h), VHOST_GET_FEATURES
// (linux/vhost.h), VFIO_GET_API_VERSION (linux/vfio.h), KVM_GET_API_VERSION (linux/kvm.h). /dev/iommu, /dev/mshv and /dev/sev
// have none that is free of consequences or needs no more than the device.
func nodes() []node {
	container := "; in a container, pass the device in"
	load := func(module string) string { return "load " + module + " (modprobe " + module + ")" + container }
	vhostFeatures := device.Request(device.Read, 0xAF, 0x00, 8)
	return []node{
		{name: "kvm", path: "kvm", remedy: "load kvm_intel or kvm_amd, or enable virtualisation in firmware" + container,
			ioctl: "KVM_GET_API_VERSION", request: device.Request(device.None, 0xAE, 0x00, 0)},
		{name: "mshv", path: "mshv", remedy: "only a Hyper-V root partition has it: load mshv_root (modprobe mshv_root)" + container},
		{name: "tun", path: "net/tun", remedy: load("tun"),
			ioctl: "TUNGETFEATURES", request: device.Request(device.Read, 'T', 207, 4), size: 4},
		{name: "vhost-net", path: "vhost-net", remedy: load("vhost_net"), ioctl: "VHOST_GET_FEATURES", request: vhostFeatures, size: 8},
		{name: "vhost-vsock", path: "vhost-vsock", remedy: load("vhost_vsock"), ioctl: "VHOST_GET_FEATURES", request: vhostFeatures, size: 8},
		{name: "vfio", path: "vfio/vfio", remedy: load("vfio"),
			ioctl: "VFIO_GET_API_VERSION", request: device.Request(device.None, ';', 100, 0)},
		{name: "iommufd", path: "iommu", remedy: "load iommufd (modprobe iommufd; Linux 6.2 or later)" + container},
		{name: "sev", path: "sev", remedy: "only an AMD processor with SEV enabled in firmware has it: load ccp (modprobe ccp)" + container},
	}
}

// outcome is a state, and why the device doesn't work.
type outcome struct {
	state capabilitiesv1.State
	fail  *device.Failure
}

// try opens the device and asks its question.
func (n node) try(kernel device.Kernel, path string) outcome {
	fd, fail := device.Open(path, func() string { return n.remedy })
	switch {
	case fail != nil && device.Absent(fail.Errno):
		return outcome{capabilitiesv1.State_STATE_ABSENT, fail}
	case fail != nil:
		return outcome{capabilitiesv1.State_STATE_UNUSABLE, fail}
	}
	defer unix.Close(fd)
	if err := n.ask(kernel, fd); err != nil {
		remedy := "its driver isn't " + n.name + "'s, or fails: look what made the device, and in the kernel's log (dmesg)"
		return outcome{capabilitiesv1.State_STATE_UNUSABLE, device.Failed(path+": "+n.ioctl, device.Errno(err), remedy)}
	}
	return outcome{state: capabilitiesv1.State_STATE_WORKS}
}

func (n node) ask(kernel device.Kernel, fd int) error {
	var err error
	switch {
	case n.ioctl == "":
	case n.size == 0:
		_, err = kernel.Call(fd, n.request, 0)
	default:
		_, err = kernel.Fill(fd, n.request, make([]byte, n.size))
	}
	return err
}
