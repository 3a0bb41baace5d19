package server

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// allowLocking raises this process's limit on locked memory, which the VMM inherits:
// the kernel counts there what a device of the host may reach (mlock(2)).
func allowLocking(bytes uint64) error {
	if bytes == 0 {
		return nil
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("getrlimit RLIMIT_MEMLOCK: %w", err)
	}
	if limit.Cur >= bytes {
		return nil
	}
	raised := unix.Rlimit{Cur: bytes, Max: max(limit.Max, bytes)}
	err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &raised)
	if errors.Is(err, unix.EPERM) {
		return fault(shim.CodeInvalid, "hostDevices",
			"setrlimit RLIMIT_MEMLOCK: %v: the VMM must lock %d bytes and may lock %d: raise the limit of whatever starts it (in a pod, that of the container runtime), or leave the devices out", err, bytes, limit.Max)
	}
	if err != nil {
		return fmt.Errorf("setrlimit RLIMIT_MEMLOCK to %d: %w", bytes, err)
	}
	return nil
}

// maxThreads of a VMM: it has some for each vCPU and each queue of a disk.
const maxThreads = 8 << 10

// boundThreads limits the threads of a VMM with a user of its own, which inherits the
// limit: one that was taken over is not to take all the numbers that a machine has for
// processes (kernel.pid_max). Root, who this process is, has no such limit.
func boundThreads(user *plan.User) error {
	if user == nil {
		return nil // in a pod that is the runtime's affair
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: maxThreads, Max: maxThreads}); err != nil {
		return fmt.Errorf("setrlimit RLIMIT_NPROC to %d: %w", maxThreads, err)
	}
	return nil
}
