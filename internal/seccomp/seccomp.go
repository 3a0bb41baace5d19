// Package seccomp restricts a program, for good, to the system calls that it is meant to make
// (seccomp(2)). It assembles the filter itself: a list of calls, some with the values that an
// argument may have.
package seccomp

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Call is a system call that may be made.
type Call struct {
	Number uint32
	// Restricted: the low 32 bits of Argument (0 to 5), of those in Mask, must be one of
	// Values. A Mask of 0 is all bits.
	Restricted bool
	Argument   int
	Mask       uint32
	Values     []uint32
}

// Any are calls that may be made with any arguments.
func Any(numbers ...uint32) (calls []Call) {
	for _, n := range numbers {
		calls = append(calls, Call{Number: n})
	}
	return calls
}

// Where is a call with one argument that must have one of the values.
func Where(number uint32, argument int, values ...uint32) Call {
	return Call{Number: number, Restricted: true, Argument: argument, Values: values}
}

// Install has all threads of the program make these calls alone. The others fail with EPERM,
// and clone3(2), whose arguments no filter sees, with ENOSYS, upon which the C library takes
// clone(2). A call of another architecture ends the program.
func Install(calls []Call) error {
	filter, err := assemble(calls)
	if err != nil {
		return err
	}
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if len(raw) > math.MaxUint16 {
		return fmt.Errorf("seccomp: a filter of %d instructions", len(raw))
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("seccomp: PR_SET_NO_NEW_PRIVS: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	}
	return nil
}

// Where struct seccomp_data has what a filter looks at (linux/seccomp.h), little-endian.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
	sizeArgument       = 8
	word               = 4
)

func assemble(calls []Call) ([]bpf.Instruction, error) {
	var arch uint32
	switch runtime.GOARCH {
	case "amd64":
		arch = unix.AUDIT_ARCH_X86_64
	case "arm64":
		arch = unix.AUDIT_ARCH_AARCH64
	default:
		return nil, fmt.Errorf("seccomp: no filter is made for %s", runtime.GOARCH)
	}
	refused := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	filter := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArchitecture, Size: word},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offsetNumber, Size: word},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	seen := make(map[uint32]bool)
	for _, c := range calls {
		if seen[c.Number] {
			return nil, fmt.Errorf("seccomp: system call %d is listed twice", c.Number)
		}
		seen[c.Number] = true
		body := c.body(refused)
		if len(body) > math.MaxUint8 {
			return nil, fmt.Errorf("seccomp: system call %d has too many values", c.Number)
		}
		filter = append(filter, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.Number, SkipTrue: uint8(len(body))})
		filter = append(filter, body...)
	}
	return append(filter, refused), nil
}

// body decides about a call whose number fits.
func (c Call) body(refused bpf.Instruction) []bpf.Instruction {
	allowed := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	if !c.Restricted {
		return []bpf.Instruction{allowed}
	}
	body := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetArguments + uint32(c.Argument)*sizeArgument, Size: word}}
	if c.Mask != 0 {
		body = append(body, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.Mask})
	}
	for _, v := range c.Values {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, allowed)
	}
	return append(body, refused)
}
