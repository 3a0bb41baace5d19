package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	// delegated cgroups have a folder for VMs and one for the agent itself:
	// cgroup v2 has no processes in a cgroup that has children.
	delegatedVMs   = "vms"
	delegatedAgent = "agent"
)

// Cgroup says where a VM's processes are, so that an agent that comes later
// finds it. In v2 there is one path, under the key "".
type Cgroup struct {
	Version int `json:"version"`
	// Paths by controller, from the root of its hierarchy.
	Paths map[string]string `json:"paths"`
}

// Path is one path, for people: in v1 that of the memory controller if it has one.
func (c Cgroup) Path() string {
	for _, key := range []string{"", "memory"} {
		if p, ok := c.Paths[key]; ok {
			return p
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Paths)) {
		return c.Paths[key]
	}
	return ""
}

// Cgroups makes a cgroup for each VM.
type Cgroups interface {
	// Plan says where a VM's cgroup will be, touching nothing.
	Plan(vm string) Cgroup
	// Warm gets the kernel ready for Add, which takes a while.
	Warm()
	// Make makes it. What the machine does not have of it is left out.
	Make(Cgroup) error
	// Add moves a process into it, and all that the process starts later.
	Add(c Cgroup, pid int) error
	// Processes are those in it; none if it is not there.
	Processes(Cgroup) ([]int, error)
	// Shut lets no process in it start another, and may kill those in it. It is for a
	// cgroup that is about to be removed.
	Shut(Cgroup) error
	// Remove deletes it. That it is not there is no error, that a process is
	// still in it is one.
	Remove(Cgroup) error
	// Sweep removes the cgroups of VMs that keep does not want, and names them.
	Sweep(keep func(vm string) bool) (removed []string, err error)
	// Close removes the cgroup that those of the VMs are in, if there are none.
	Close()
}

// ErrNoCgroups says that the machine has none that can be used.
var ErrNoCgroups = errors.New("no cgroups: nothing is mounted at " + cgroupMount)

// NewCgroups finds out what the machine has. parent is a path from the root of
// the cgroups, empty for the agent's own choice, which ends in the name folder;
// see OpenV2 and openV1. All that is in there is this agent's.
func NewCgroups(parent, folder string) (Cgroups, error) {
	switch cgroups.Mode() {
	case cgroups.Unified:
		if parent != "" {
			return OpenV2(cgroupMount, parent)
		}
		return ownV2(cgroupMount, folder)
	case cgroups.Hybrid, cgroups.Legacy:
		return openV1(parent, folder)
	}
	return nil, ErrNoCgroups
}

// ownV2 uses the agent's own cgroup if systemd has delegated it, else one
// below the root, where systemd leaves alone what it did not make.
func ownV2(mount, folder string) (Cgroups, error) {
	own, err := ownPath("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	if !delegated(filepath.Join(mount, own)) {
		return OpenV2(mount, "/"+folder)
	}
	if err := moveSelf(mount, filepath.Join(own, delegatedAgent)); err != nil {
		return nil, err
	}
	return OpenV2(mount, filepath.Join(own, delegatedVMs))
}

func ownPath(file string) (string, error) {
	_, unified, err := cgroups.ParseCgroupFileUnified(file)
	if err != nil {
		return "", fmt.Errorf("finding the agent's own cgroup: %w", err)
	}
	return unified, nil
}

// others are the VMs that have a folder in a cgroup, but for those to keep.
func others(folder string, keep func(string) bool) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !keep(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// removeAll removes VMs' cgroups, with one deadline for all of them.
func removeAll(vms []string, remove func(vm string, deadline time.Time) error) ([]string, error) {
	var removed []string
	var errs []error
	deadline := soon()
	for _, vm := range vms {
		if err := remove(vm, deadline); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, vm)
	}
	return removed, errors.Join(errs...)
}

// warm moves the agent to where it is. To move a process the kernel waits for an
// RCU grace period, up to 20 ms, but not if another move was just before
// (rcu_sync_enter in kernel/rcu/sync.c): so the wait can go on beside other
// things, and the move that counts takes none. procs is the agent's own cgroup.procs.
func warm(procs string) {
	// Nothing depends on it.
	_ = os.WriteFile(procs, []byte("0"), 0)
}

// A cgroup stays busy for a moment after its last process has ended, and the
// kernel tells nobody when that is over (only v2 does, of other things): it is
// tried again this often, and this long.
const (
	retryEvery = 5 * time.Millisecond
	retryLimit = 3 * time.Second
)

func soon() time.Time { return time.Now().Add(retryLimit) }

// rmdir removes a cgroup: the folder as a whole, files and all, if nobody is
// in it by the deadline. That it is not there is no error.
func rmdir(folder string, deadline time.Time) error {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for ; ; <-again.C {
		err := unix.Rmdir(folder)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("%s: %w", folder, err)
		case time.Now().After(deadline):
			return fmt.Errorf("%s: %w%s", folder, err, inhabitants(folder))
		}
	}
}

// inhabitants names who is in a cgroup, with what to do about it.
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
	return ": end by hand the processes in it: " + strings.Join(names, ", ")
}

// processesIn are those in a cgroup; none if it is not there.
func processesIn(folder string) (pids []int, err error) {
	b, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if err != nil {
		return nil, gone(err)
	}
	for field := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%s: cgroup.procs: %w", folder, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func wrapCgroup(do string, c Cgroup, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s cgroup %s: %w", do, strings.TrimPrefix(c.Path(), "/"), err)
}
