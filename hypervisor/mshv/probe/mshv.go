// Package probe tries the Microsoft Hypervisor of this node and asks what it can do, through /dev/mshv by ioctl.
package probe

import (
	"context"
	"encoding/binary"
	"syscall"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/hypervisor/mshv"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// From linux/mshv.h (Linux 6.15): MSHV_IOCTL is 0xB8, MSHV_CREATE_PARTITION is _IOW(MSHV_IOCTL, 0, struct mshv_create_partition),
// and the flags are bit numbers.
const (
	mshvCreatePartition = 1<<30 | 16<<16 | 0xB8<<8

	mshvFlagLAPIC         = 1 << 0 // MSHV_PT_BIT_LAPIC
	mshvFlagX2APIC        = 1 << 1 // MSHV_PT_BIT_X2APIC
	mshvFlagGPASuperPages = 1 << 2 // MSHV_PT_BIT_GPA_SUPER_PAGES
)

// MSHV is the Microsoft Hypervisor of the node whose files are below Roots.
type MSHV struct {
	mshv.MSHV
	Roots sysfs.Roots
	// Kernel answers the ioctls; nil: the running one.
	Kernel device.Kernel
}

var _ hypervisor.Hypervisor = MSHV{}

// Device returns the path of /dev/mshv under the root.
func (m MSHV) Device() string { return m.Roots.DevPath("mshv") }

// Check opens the device and makes a partition, which is the least that only a root partition may do. No guest is run.
func (m MSHV) Check(ctx context.Context) hypervisor.Status {
	return device.Bounded(ctx, m.Device(), m.try)
}

func (m MSHV) try(context.Context) hypervisor.Status {
	fd, fail := device.Open(m.Device(), absentRemedy)
	if fail != nil {
		return fail.Status()
	}
	defer unix.Close(fd)
	partition, fail := m.createPartition(fd)
	if fail != nil {
		return fail.Status()
	}
	unix.Close(partition)
	return hypervisor.Status{Level: hypervisor.Works}
}

func (m MSHV) kernel() device.Kernel {
	if m.Kernel == nil {
		return device.System{}
	}
	return m.Kernel
}

func (m MSHV) createPartition(fd int) (int, *device.Failure) {
	// struct mshv_create_partition {pt_flags, pt_isolation}; isolation 0 is MSHV_PT_ISOLATION_NONE.
	args := make([]byte, 16)
	binary.NativeEndian.PutUint64(args, mshvFlagLAPIC|mshvFlagX2APIC|mshvFlagGPASuperPages)
	partition, err := m.kernel().Fill(fd, mshvCreatePartition, args)
	if err != nil {
		return -1, createFailure(m.Device(), device.Errno(err))
	}
	return partition, nil
}

func absentRemedy() string {
	return "this kernel is no Hyper-V root partition with the mshv module: load mshv_root, or use another hypervisor"
}

func createFailure(path string, errno syscall.Errno) *device.Failure {
	remedy := ""
	switch errno {
	case unix.ENOTTY:
		remedy = "the device speaks another interface than Linux 6.15's: use that kernel's driver or a newer kernel"
	case unix.EPERM, unix.EACCES:
		remedy = "only a root partition may make partitions: run on the host, as root"
	case unix.ENOMEM:
		remedy = "the hypervisor has no memory left for a partition: stop a VM"
	}
	return device.Failed(path+": MSHV_CREATE_PARTITION", errno, remedy)
}

// DependsOn is /dev/mshv.
func (MSHV) DependsOn() hypervisor.Dependencies {
	return hypervisor.Dependencies{
		Devices: []hypervisor.DeviceNode{
			{Name: "mshv", Path: "mshv", Remedy: "only a Hyper-V root partition has it: load mshv_root (modprobe mshv_root); in a container, pass the device in"},
		},
		Modules: []string{"mshv*"},
	}
}
