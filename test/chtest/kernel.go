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

// dieOf ends the process by a signal. Go's runtime would catch some of them.
func dieOf(signal unix.Signal) {
	var byDefault [32]byte // struct kernel_sigaction, all zero: SIG_DFL
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	unix.Kill(os.Getpid(), signal)
	select {} // until it arrives
}
