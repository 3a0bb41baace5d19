// Package mshv is the Microsoft Hypervisor, driven from a root partition through
// /dev/mshv by ioctl.
package mshv

import (
	"context"
	"encoding/binary"
	"syscall"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
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

// MSHV is the Microsoft Hypervisor, driven from a root partition through /dev/mshv (Linux 6.15 and later).
type MSHV struct {
	hypervisor.Base
	Roots sysfs.Roots
	// Kernel answers the ioctls; nil: the running one.
	Kernel device.Kernel
}

var _ hypervisor.Hypervisor = MSHV{}

// Name returns "mshv".
func (MSHV) Name() string { return hypervisor.NameMSHV }

// Device returns the path of /dev/mshv under the root.
func (m MSHV) Device() string { return m.Roots.DevPath("mshv") }

// Accelerator returns "mshv", which QEMU has from 10.2.
func (MSHV) Accelerator() string { return "mshv" }

// VirtType returns "hyperv".
func (MSHV) VirtType() string { return "hyperv" }

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

// DeviceRequests are /dev/mshv, and what every VM can use.
func (m MSHV) DeviceRequests() []hypervisor.DeviceRequest {
	own := []hypervisor.DeviceRequest{{Resource: contract.ResourceMSHV, Path: "/dev/mshv"}}
	return append(own, m.Base.DeviceRequests()...)
}
