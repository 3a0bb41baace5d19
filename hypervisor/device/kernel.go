package device

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kernel answers ioctls. System is the running one; a test has its own. Errors are a syscall.Errno. Implementations are safe
// for concurrent use.
type Kernel interface {
	// Call makes an ioctl whose argument is a plain number, and returns what the call returned.
	Call(fd int, request, arg uintptr) (int, error)
	// Fill makes an ioctl whose argument is the address of a structure: buf, as the kernel lays it out, which it may change.
	// Links are buffers whose addresses the structure holds. buf must not be empty.
	Fill(fd int, request uintptr, buf []byte, links ...Link) (int, error)
}

// Link is a buffer whose address the kernel finds in another one, as 64 bits at an offset.
type Link struct {
	Offset int
	Buf    []byte
}

// System is the running kernel.
type System struct{}

var _ Kernel = System{}

// Call makes the ioctl, again when a signal broke it off.
func (System) Call(fd int, request, arg uintptr) (int, error) { return IoctlInt(fd, request, arg) }

// Fill makes the ioctl, again when a signal broke it off.
func (System) Fill(fd int, request uintptr, buf []byte, links ...Link) (int, error) {
	if len(buf) == 0 {
		return -1, unix.EFAULT
	}
	// The addresses go to the kernel as numbers, so the buffers must stay where they are without a pointer to them.
	var pins runtime.Pinner
	defer pins.Unpin()
	for _, l := range links {
		if len(l.Buf) == 0 || l.Offset < 0 || l.Offset+8 > len(buf) {
			return -1, unix.EFAULT
		}
		pins.Pin(&l.Buf[0])
		binary.NativeEndian.PutUint64(buf[l.Offset:], uint64(uintptr(unsafe.Pointer(&l.Buf[0]))))
	}
	return Ioctl(fd, request, unsafe.Pointer(&buf[0]))
}

// Directions of an ioctl's argument (asm-generic/ioctl.h), as the program sees it.
const (
	None      = 0
	Write     = 1
	Read      = 2
	ReadWrite = Read | Write
)

// Request is an ioctl's number: _IOC(direction, kind, number, size) of asm-generic/ioctl.h, which x86, arm64, s390x and RISC-V
// have; POWER and MIPS divide the word differently.
func Request(direction, kind, number, size uintptr) uintptr {
	return direction<<30 | size<<16 | kind<<8 | number
}
