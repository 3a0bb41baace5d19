package device

import (
	"encoding/binary"
	"fmt"

	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// CPUIDLeaf is what CPUID answers.
type CPUIDLeaf struct{ EAX, EBX, ECX, EDX uint32 }

// CPUIDReader answers CPUID of an x86 processor: of the one it runs on where the roots are this machine's, else what the file
// /dev/cpu/0/cpuid under the root says, which the kernel's module cpuid makes.
func CPUIDReader(roots sysfs.Roots) func(function, index uint32) (CPUIDLeaf, error) {
	if roots.Own() && hasCPUID {
		return func(function, index uint32) (CPUIDLeaf, error) { return cpuid(function, index), nil }
	}
	return cpuidOfDevice(roots.DevPath("cpu/0/cpuid"))
}

func cpuidOfDevice(path string) func(function, index uint32) (CPUIDLeaf, error) {
	return func(function, index uint32) (CPUIDLeaf, error) {
		fd, fail := OpenFor(path, unix.O_RDONLY, func() string { return "load cpuid (modprobe cpuid)" })
		if fail != nil {
			return CPUIDLeaf{}, fail
		}
		defer unix.Close(fd)
		// The place in the file is the leaf: EAX in the lower half, ECX in the upper (arch/x86/kernel/cpuid.c).
		var buf [16]byte
		n, err := Retry(func() (int, error) { return unix.Pread(fd, buf[:], int64(function)|int64(index)<<32) })
		if err != nil {
			return CPUIDLeaf{}, Failed(fmt.Sprintf("%s: leaf %#x", path, function), Errno(err), "")
		}
		if n != len(buf) {
			return CPUIDLeaf{}, &Failure{Reason: fmt.Sprintf("%s: leaf %#x has %d bytes", path, function, n)}
		}
		word := func(at int) uint32 { return binary.LittleEndian.Uint32(buf[4*at:]) }
		return CPUIDLeaf{EAX: word(0), EBX: word(1), ECX: word(2), EDX: word(3)}, nil
	}
}
