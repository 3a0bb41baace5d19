package hypervisor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/kvm.h: KVMIO is 0xAE and these are _IO(KVMIO, nr), the same on every architecture.
const (
	kvmAPIVersion = 12 // KVM_API_VERSION, the only one since Linux 2.6.22

	kvmGetAPIVersion   = 0xAE00 // KVM_GET_API_VERSION
	kvmCreateVM        = 0xAE01 // KVM_CREATE_VM
	kvmGetVCPUMmapSize = 0xAE04 // KVM_GET_VCPU_MMAP_SIZE
	kvmCreateVCPU      = 0xAE41 // KVM_CREATE_VCPU
	kvmRun             = 0xAE80 // KVM_RUN
)

// ioctl calls with a pointer and again when a signal broke it off; the result is what the call returned. KVM_RUN doesn't go
// through here, because there the signal is wanted.
func ioctl(fd int, request uintptr, arg unsafe.Pointer) (int, error) {
	return retry(func() (int, error) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
		if errno != 0 {
			return -1, errno
		}
		return int(n), nil
	})
}

// ioctlInt is ioctl with a plain number as argument.
func ioctlInt(fd int, request, arg uintptr) (int, error) {
	return retry(func() (int, error) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
		if errno != 0 {
			return -1, errno
		}
		return int(n), nil
	})
}
