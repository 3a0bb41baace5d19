package chtest

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlBytes is an ioctl that fills a structure.
func ioctlBytes(fd int, request uint, structure []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(structure))))
	if errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}
