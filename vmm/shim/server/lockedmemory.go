package server

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/vmm/shim"
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
