// Package limits has what the VMM's process inherits of the shim: how much it may lock, how many threads it
// may have, and which capabilities. It must not know how that process is started.
package limits

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// AllowLocking raises this process's limit on locked memory, which the VMM inherits:
// the kernel counts there what a device of the host may reach (mlock(2)).
func AllowLocking(bytes uint64) error {
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
		return &shim.Error{Code: shim.CodeInvalid, Field: "hostDevices", Message: fmt.Sprintf(
			"setrlimit RLIMIT_MEMLOCK: %v: the VMM must lock %d bytes and may lock %d: raise the limit of whatever starts it (in a pod, that of the container runtime), or leave the devices out", err, bytes, limit.Max)}
	}
	if err != nil {
		return fmt.Errorf("setrlimit RLIMIT_MEMLOCK to %d: %w", bytes, err)
	}
	return nil
}

// maxThreads of a VMM: it has some for each vCPU and each queue of a disk.
const maxThreads = 8 << 10

// BoundThreads limits the threads of a VMM with a user of its own, which inherits the
// limit: one that was taken over is not to take all the numbers that a machine has for
// processes (kernel.pid_max). Root, who this process is, has no such limit.
func BoundThreads(user *plan.User) error {
	if user == nil {
		return nil // in a pod that is the runtime's affair
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: maxThreads, Max: maxThreads}); err != nil {
		return fmt.Errorf("setrlimit RLIMIT_NPROC to %d: %w", maxThreads, err)
	}
	return nil
}

// GiveUpCapabilities leaves this thread, and what it starts as a user other than root,
// without a capability in any set (capabilities(7)): the change of user empties the
// permitted, effective and ambient sets, and leaves the inheritable and the bounding one.
// What is permitted to this thread itself stays, as starting the VMM takes it.
func GiveUpCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("emptying the inheritable set: %w", err)
	}
	for c := uintptr(0); ; c++ {
		bounded, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // EINVAL: the kernel has no more
		}
		if bounded == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("taking capability %d from the bounding set: %w: the shim needs CAP_SETPCAP", c, err)
		}
	}
}
