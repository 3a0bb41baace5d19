package hypervisor

import (
	"context"
	"path/filepath"
	"syscall"
	"unsafe"

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
	Roots Roots
}

var _ Hypervisor = MSHV{}

// Name returns "mshv".
func (MSHV) Name() string { return NameMSHV }

// Device returns the path of /dev/mshv under the root.
func (m MSHV) Device() string { return filepath.Join(m.Roots.dev(), "mshv") }

// Accelerator returns "mshv", which QEMU has from 10.2.
func (MSHV) Accelerator() string { return "mshv" }

// VirtType returns "hyperv".
func (MSHV) VirtType() string { return "hyperv" }

// Check opens the device and makes a partition, which is the least that only a root partition may do. No guest is run.
func (m MSHV) Check(ctx context.Context) Status {
	return bounded(ctx, m.Device(), m.try)
}

func (m MSHV) try(context.Context) Status {
	fd, fail := openDevice(m.Device(), func() string {
		return "this kernel is no Hyper-V root partition with the mshv module: load mshv_root, or use another hypervisor"
	})
	if fail != nil {
		return fail.status()
	}
	defer unix.Close(fd)
	// struct mshv_create_partition {pt_flags, pt_isolation}; isolation 0 is MSHV_PT_ISOLATION_NONE.
	args := struct{ flags, isolation uint64 }{flags: mshvFlagLAPIC | mshvFlagX2APIC | mshvFlagGPASuperPages}
	partition, err := ioctl(fd, mshvCreatePartition, unsafe.Pointer(&args))
	if err != nil {
		return mshvFailure(m.Device(), errnoOf(err)).status()
	}
	unix.Close(partition)
	return Status{Level: Works}
}

func mshvFailure(device string, errno syscall.Errno) *failure {
	remedy := ""
	switch errno {
	case unix.ENOTTY:
		remedy = "the device speaks another interface than Linux 6.15's: use that kernel's driver or a newer kernel"
	case unix.EPERM, unix.EACCES:
		remedy = "only a root partition may make partitions: run on the host, as root"
	case unix.ENOMEM:
		remedy = "the hypervisor has no memory left for a partition: stop a VM"
	}
	return failed(device+": MSHV_CREATE_PARTITION", errno, remedy)
}
