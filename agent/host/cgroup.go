package host

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// Cgroup says where a VM's processes are, so that an agent that comes later
// finds it. In v2 there is one path, under the key "".
type Cgroup struct {
	Version int `json:"version"`
	// Paths by controller, from the root of its hierarchy.
	Paths map[string]string `json:"paths"`
	// Unit is the scope that systemd makes it for; empty: systemd has no part in it.
	Unit string `json:"unit,omitempty"`
	// Grace is how long the VM may take to end when systemd stops the unit.
	Grace time.Duration `json:"grace,omitempty"`
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
	// Make makes it. What the machine does not have of it is left out.
	Make(Cgroup) error
	// Add moves a process into it, and all that the process starts later.
	Add(c Cgroup, pid int) error
	// Enter has the process that the calling thread starts with attr be in it, at once or
	// when join is called with its pid, or with 0 if none was started. It may move
	// the thread there: the caller has locked it, and ends it afterwards.
	Enter(c Cgroup, attr *syscall.SysProcAttr) (join func(pid int) error, err error)
	// Processes are those in it; none if it is not there.
	Processes(Cgroup) ([]int, error)
	// Shut lets no process in it start another, and may kill those in it. It is for a
	// cgroup that is about to be removed.
	Shut(Cgroup) error
	// Remove deletes it. That it is not there is no error, that a process is
	// still in it is one.
	Remove(Cgroup) error
	// Sweep removes the cgroups that vmlet has made for VMs that keep does not
	// want, and names them.
	Sweep(keep func(vm string) bool) (removed []string, err error)
	// Close removes the cgroup that those of the VMs are in, if there are none.
	Close()
}

// ErrNoCgroups says that the machine has none that can be used.
var ErrNoCgroups = errors.New("no cgroups: nothing is mounted at " + cgroupMount)

// NewCgroups finds out what the machine has. parent is a path from the root of
// the cgroups, empty for the agent's own choice, which ends in the name folder;
// see openUnified and openV1.
func NewCgroups(parent, folder string, log *slog.Logger) (Cgroups, error) {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return openUnified(parent, folder, log)
	case cgroups.Hybrid, cgroups.Legacy:
		return openV1(parent, folder)
	}
	return nil, ErrNoCgroups
}

// openUnified has systemd make VMs' cgroups where it can.
func openUnified(parent, folder string, log *slog.Logger) (Cgroups, error) {
	own, err := ownPath("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	slice, path, err := placeUnified(parent, folder, own, systemdRuns())
	if err != nil {
		return nil, err
	}
	if slice != "" {
		s, err := openScopes(cgroupMount, slice, systemBus)
		if err == nil || path == "" {
			return s, err
		}
		log.Warn("systemd makes no scopes for VMs: a shutdown of the machine ends guests without asking them", "error", err)
	}
	return OpenV2(cgroupMount, path, log)
}

// placeUnified says which slice of systemd's VMs belong in, and the cgroup that they are
// in without systemd; empty: none. At the root systemd leaves alone what it did not make.
// Not below the agent's own cgroup: systemd can't start a unit again whose cgroup has
// children with controllers, as the kernel allows no process in it.
func placeUnified(parent, folder, own string, systemd bool) (slice, path string, err error) {
	switch {
	case parent == "" && systemd:
		return folder + ".slice", "/" + folder, nil
	case parent == "":
		return "", "/" + folder, nil
	case systemd && strings.HasSuffix(parent, ".slice"):
		slice = filepath.Base(parent)
		if want := slicePath(slice); parent != want {
			err = fmt.Errorf("cgroup.parent: %s: systemd has %s at %s", parent, slice, want)
		}
		return slice, "", err
	case own != "/" && strings.HasPrefix(parent+"/", own+"/"):
		err = fmt.Errorf("cgroup.parent: %s is in the agent's own cgroup %s, where the agent could not be started again while a VM runs: set it to another cgroup", parent, own)
	}
	return "", parent, err
}

func ownPath(file string) (string, error) {
	_, unified, err := cgroups.ParseCgroupFileUnified(file)
	if err != nil {
		return "", fmt.Errorf("finding the agent's own cgroup: %w", err)
	}
	return unified, nil
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
	return untilNotBusy(folder, deadline, unix.Rmdir)
}

func untilNotBusy(folder string, deadline time.Time, do func(string) error) error {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for ; ; <-again.C {
		err := do(folder)
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

// processesIn are those in a cgroup; none if it is not there.
func processesIn(folder string) (pids []int, err error) {
	b, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if errors.Is(err, unix.ENODEV) { // it was removed meanwhile
		return nil, nil
	}
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
