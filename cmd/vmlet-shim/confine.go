package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// confine sets what the VMM inherits, and what it could get at by way of this process,
// whose user it is in a pod.
func confine() error {
	// Nothing is made for others to read.
	unix.Umask(0o077)
	if err := errors.Join(noCores(), nothingElse()); err != nil {
		return err
	}
	// Not to be traced by a process of its own user, nor its memory read through
	// /proc (ptrace(2)). An exec sets it again, for the VMM.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// nothingElse keeps from the VMM what this process was started with by mistake: an
// agent's, or a container runtime's, that came by descriptors without close-on-exec.
func nothingElse() error {
	fds, err := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if n, err := strconv.Atoi(fd.Name()); err == nil && n > unix.Stderr {
			unix.CloseOnExec(n)
		}
	}
	return err
}

// noCores keeps the guest's memory out of core files. The limit is for files; where
// the kernel pipes cores to a program it counts for nothing, and the filter leaves
// that no memory (core(5)).
func noCores() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("setrlimit RLIMIT_CORE: %w", err)
	}
	// A kernel without core files has no such file, and a container may have /proc
	// read-only: then the limit has to do.
	err := os.WriteFile("/proc/self/coredump_filter", []byte("0"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EROFS) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}
