// Package capset takes capabilities away from the running program for good
// (capabilities(7)).
package capset

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// KeepOnly goes on as a program that has none but these capabilities and can get
// no others: it takes them from the bounding set and executes the program again,
// with the same arguments, in the same process. So it is called first of all. It
// returns nil if there are no others, as is the case in the program that was
// executed; without CAP_SETPCAP the error wraps unix.EPERM.
func KeepOnly(keep ...int) error {
	bounding, err := bounding("/proc/thread-self/status")
	if err != nil {
		return err
	}
	drop := bounding &^ setOf(keep)
	if drop == 0 {
		return nil
	}
	// The bounding set is a thread's; execve(2) leaves the process with this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for c := range 64 {
		if drop&(1<<c) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("taking capability %d from the bounding set: %w", c, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("executing %s again: %w", self, syscall.Exec(self, os.Args, os.Environ()))
}

func setOf(capabilities []int) (set uint64) {
	for _, c := range capabilities {
		set |= 1 << c
	}
	return set
}

// bounding reads CapBnd of a status file (proc_pid_status(5)).
func bounding(path string) (uint64, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, "CapBnd:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: CapBnd: %w", path, err)
			}
			return set, nil
		}
	}
	return 0, fmt.Errorf("%s has no CapBnd", path)
}
