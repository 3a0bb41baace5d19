package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mark is an extended attribute of the cgroups that vmlet has made. Others may
// have cgroups in the same parent, which are left alone.
const mark = "trusted.vmlet"

// attribute says whether a folder has an extended attribute whose value is "1".
func attribute(folder, name string) bool {
	var b [1]byte
	n, err := unix.Getxattr(folder, name, b[:])
	return err == nil && n == 1 && b[0] == '1'
}

// makeMarked makes a cgroup, with those above it, and marks it. One that is
// there is left as it is.
func makeMarked(folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	if err := unix.Setxattr(folder, mark, []byte("1"), 0); err != nil {
		return fmt.Errorf("marking %s: %w", folder, errors.Join(err, unix.Rmdir(folder)))
	}
	return nil
}

// refuseForeign refuses a VM's cgroup that somebody else uses.
func refuseForeign(folder string) error {
	if attribute(folder, mark) {
		return nil
	}
	pids, err := processesIn(folder)
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("%s is not vmlet's and has processes: set cgroup.parent in the agent's configuration to another cgroup", folder)
	}
	return err
}

// closeMarked removes a cgroup if it is marked and empty.
func closeMarked(folder string) {
	if attribute(folder, mark) {
		_ = unix.Rmdir(folder)
	}
}

// others are the VMs that have a marked folder in a cgroup, but for those to keep.
func others(folder string, keep func(string) bool) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !keep(e.Name()) && attribute(filepath.Join(folder, e.Name()), mark) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// inhabitants names the processes in a cgroup.
func inhabitants(folder string) string {
	pids, err := processesIn(folder)
	if err != nil || len(pids) == 0 {
		return ""
	}
	var names []string
	for _, pid := range pids {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
		names = append(names, fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(comm))))
	}
	return ": processes in it: " + strings.Join(names, ", ")
}
