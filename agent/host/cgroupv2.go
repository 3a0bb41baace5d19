package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// v2 is the unified hierarchy, or the part of it at parent.
type v2 struct{ mount, parent string }

// OpenV2 has each VM's cgroup at parent/VM in the cgroup v2 hierarchy that is
// mounted at mount, with the controllers that count and limit what a VM uses.
// One that can't be enabled costs that one only, and is logged.
func OpenV2(mount, parent string, log *slog.Logger) (Cgroups, error) {
	v := v2{mount, parent}
	if err := makeMarked(v.folder(parent)); err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", parent, err)
	}
	levels := v.levels()
	there, err := controllers(levels[0], "cgroup.controllers")
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", parent, err)
	}
	for _, c := range []string{"cpu", "memory", "io", "pids", "cpuset"} {
		if !slices.Contains(there, c) {
			continue
		}
		if err := enable(levels, c); err != nil {
			log.Warn("VMs' cgroups lack a controller", "controller", c, "parent", parent, "error", err)
		}
	}
	return v, nil
}

// levels are the folders whose children need controllers, from the top down to
// parent. A cgroup that systemd has delegated is the top: those above it are
// systemd's alone to write (systemd.io/CGROUP_DELEGATION).
func (v v2) levels() []string {
	var levels []string
	for path := v.parent; ; path = filepath.Dir(path) {
		folder := v.folder(path)
		levels = append(levels, folder)
		if path == "/" || delegated(folder) {
			slices.Reverse(levels)
			return levels
		}
	}
}

// delegated reads the mark that systemd puts on a cgroup with Delegate=
// (systemd.resource-control(5)): trusted.delegate, and user.delegate from v251.
func delegated(folder string) bool {
	return attribute(folder, "user.delegate") || attribute(folder, "trusted.delegate")
}

// controllers reads one of cgroup v2's lists of controllers.
func controllers(folder, file string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(folder, file))
	return strings.Fields(string(b)), err
}

// enable gives the children of each level a controller, where they lack it.
func enable(levels []string, controller string) error {
	for _, folder := range levels {
		enabled, err := controllers(folder, "cgroup.subtree_control")
		if err == nil && !slices.Contains(enabled, controller) {
			err = os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+"+controller), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v v2) folder(path string) string { return filepath.Join(v.mount, path) }

func (v v2) Plan(vm string) Cgroup {
	return Cgroup{Version: 2, Paths: map[string]string{"": filepath.Join(v.parent, vm)}}
}

func (v v2) Make(c Cgroup) error {
	folder := v.folder(c.Paths[""])
	err := refuseForeign(folder)
	if err == nil {
		err = makeMarked(folder)
	}
	return wrapCgroup("make", c, err)
}

func (v v2) Warm() {
	if own, err := ownPath("/proc/self/cgroup"); err == nil {
		warm(filepath.Join(v.folder(own), "cgroup.procs"))
	}
}

func (v v2) Add(c Cgroup, pid int) error {
	procs := filepath.Join(v.folder(c.Paths[""]), "cgroup.procs")
	return wrapCgroup("join", c, os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0))
}

func (v v2) Processes(c Cgroup) ([]int, error) {
	return processesIn(v.folder(c.Paths[""]))
}

func (v v2) Remove(c Cgroup) error { return v.removeBy(c, soon()) }

func (v v2) removeBy(c Cgroup, deadline time.Time) error {
	path := c.Paths[""]
	if path == "" {
		return nil
	}
	remove := unix.Rmdir
	if c.Unit != "" {
		remove = empty
	}
	return wrapCgroup("remove", c, untilNotBusy(v.folder(path), deadline, remove))
}

// empty is EBUSY if a process is in a cgroup. systemd removes a scope's cgroup
// itself: it may miss the end of one that somebody else has removed.
func empty(folder string) error {
	pids, err := processesIn(folder)
	if err == nil && len(pids) > 0 {
		return unix.EBUSY
	}
	return err
}

// Close leaves a cgroup that is not empty, or that vmlet has not made, as it is.
func (v v2) Close() { closeMarked(v.folder(v.parent)) }

func (v v2) Sweep(keep func(string) bool) ([]string, error) {
	found, err := others(v.folder(v.parent), keep)
	removed, errRemove := removeAll(found, func(vm string, deadline time.Time) error { return v.removeBy(v.Plan(vm), deadline) })
	return removed, errors.Join(err, errRemove)
}
