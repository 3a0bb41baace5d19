package capabilities

import (
	"slices"
	"syscall"

	"github.com/vmlet/vmlet/hypervisor"
	"golang.org/x/sys/unix"
)

// passing are the kernel's answers that may be others in a moment.
func passing() []syscall.Errno {
	return []syscall.Errno{
		unix.EAGAIN, unix.EBUSY, unix.EINTR, unix.EIO, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.ETIMEDOUT, unix.ECANCELED,
	}
}

// lasting says whether a check found out something of the machine: that it
// works, that the kernel refuses, or how fast the trial guest runs. All else (a
// time limit, a kernel short of memory) is asked again the next time.
func lasting(s hypervisor.Status) bool {
	switch {
	case s.Level == hypervisor.Works:
		return true
	case s.Errno != 0:
		return !slices.Contains(passing(), s.Errno)
	}
	return s.InstructionsPerSecond > 0
}
