// Package capset takes capabilities away from the running program for good
// (capabilities(7)).
package capset

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// KeepOnly goes on as a program that has none but these capabilities and can get
// no others: it takes them from the bounding, inheritable and ambient sets and executes
// the program again, with the same arguments, in the same process. So it is called first of
// all. It returns nil if no set has others, as is the case in the program that was
// executed; without CAP_SETPCAP the error wraps unix.EPERM.
func KeepOnly(keep ...int) error {
	now, err := readSets("/proc/thread-self/status")
	if err != nil {
		return err
	}
	drop := now["CapBnd"] &^ setOf(keep)
	if drop == 0 && now["CapInh"] == 0 && now["CapAmb"] == 0 {
		return now.within(setOf(keep))
	}
	// The sets are a thread's; execve(2) leaves the process with this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := clearInherited(); err != nil {
		return err
	}
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

// clearInherited empties the thread's inheritable and ambient sets, which takes no
// capability. At execve(2) root gets what is inheritable as well as what is in the bounding
// set, and some container runtimes fill the one like the other.
func clearInherited() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading the inheritable set: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("emptying the inheritable set: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("emptying the ambient set: %w", err)
	}
	return nil
}

func setOf(capabilities []int) (set uint64) {
	for _, c := range capabilities {
		set |= 1 << c
	}
	return set
}

// sets are a thread's five sets by their names in its status file.
type sets map[string]uint64

func setNames() []string { return []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} }

// within returns an error that names the set which has more than allowed.
func (s sets) within(allowed uint64) error {
	for _, name := range setNames() {
		if more := s[name] &^ allowed; more != 0 {
			return fmt.Errorf("%s still has capabilities %#x, which were to be given up", name, more)
		}
	}
	return nil
}

// readSets reads the sets of a status file (proc_pid_status(5)).
func readSets(path string) (sets, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := make(sets)
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		if !slices.Contains(setNames(), name) {
			continue
		}
		if found[name], err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	for _, name := range setNames() {
		if _, is := found[name]; !is {
			return nil, fmt.Errorf("%s has no %s", path, name)
		}
	}
	return found, nil
}
