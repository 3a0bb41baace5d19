package device

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ioctl calls with a pointer and again when a signal broke it off; the result is what the call returned. KVM_RUN doesn't go
// through here, because there the signal is wanted.
func Ioctl(fd int, request uintptr, arg unsafe.Pointer) (int, error) {
	return Retry(func() (int, error) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
		if errno != 0 {
			return -1, errno
		}
		return int(n), nil
	})
}

// IoctlInt is Ioctl with a plain number as argument.
func IoctlInt(fd int, request, arg uintptr) (int, error) {
	return Retry(func() (int, error) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
		if errno != 0 {
			return -1, errno
		}
		return int(n), nil
	})
}
