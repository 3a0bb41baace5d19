package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// v2 is the unified hierarchy, or the part of it at parent.
type v2 struct{ mount, parent string }

// OpenV2 has each VM's cgroup at parent/VM in the cgroup v2 hierarchy that is
// mounted at mount, with the controllers that count and limit what a VM uses,
// as far as they are there.
func OpenV2(mount, parent string) (Cgroups, error) {
	all, err := cgroup2.NewManager(mount, filepath.Join(parent, "any"), &cgroup2.Resources{})
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", parent, err)
	}
	defer os.Remove(filepath.Join(mount, parent, "any"))
	there, err := all.RootControllers()
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", parent, err)
	}
	var wanted []string
	for _, c := range []string{"cpu", "memory", "io", "pids", "cpuset"} {
		if slices.Contains(there, c) {
			wanted = append(wanted, c)
		}
	}
	if err := all.ToggleControllers(wanted, cgroup2.Enable); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", parent, err)
	}
	return v2{mount, parent}, nil
}

// delegated reads the mark that systemd puts on a cgroup with Delegate=
// (systemd.resource-control(5)): trusted.delegate, and user.delegate from v251.
func delegated(folder string) bool {
	var b [1]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(folder, name, b[:]); err == nil && n == 1 && b[0] == '1' {
			return true
		}
	}
	return false
}

func moveSelf(mount, path string) error {
	leaf, err := cgroup2.NewManager(mount, path, &cgroup2.Resources{})
	if err == nil {
		err = leaf.AddProc(uint64(os.Getpid()))
	}
	if err != nil {
		return fmt.Errorf("moving the agent into cgroup %s, as its own has those of the VMs: %w", path, err)
	}
	return nil
}

func (v v2) Plan(vm string) Cgroup {
	return Cgroup{Version: 2, Paths: map[string]string{"": filepath.Join(v.parent, vm)}}
}

func (v v2) Make(c Cgroup) error {
	_, err := cgroup2.NewManager(v.mount, c.Paths[""], &cgroup2.Resources{})
	return wrapCgroup("make", c, err)
}

// Enter has the kernel make the process there (clone3(2), CLONE_INTO_CGROUP): to move
// one later takes an RCU grace period, up to 20 ms.
func (v v2) Enter(c Cgroup, attr *syscall.SysProcAttr) (func(), error) {
	folder, err := os.Open(filepath.Join(v.mount, c.Paths[""]))
	if err != nil {
		return nil, wrapCgroup("join", c, err)
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(folder.Fd())
	return func() { folder.Close() }, nil
}

func (v v2) load(c Cgroup) (*cgroup2.Manager, error) {
	return cgroup2.Load(c.Paths[""], cgroup2.WithMountpoint(v.mount))
}

func (v v2) Add(c Cgroup, pid int) error {
	m, err := v.load(c)
	if err == nil {
		err = m.AddProc(uint64(pid))
	}
	return wrapCgroup("join", c, err)
}

func (v v2) Processes(c Cgroup) ([]int, error) {
	return processesIn(filepath.Join(v.mount, c.Paths[""]))
}

func (v v2) Remove(c Cgroup) error { return v.removeBy(c, soon()) }

func (v v2) removeBy(c Cgroup, deadline time.Time) error {
	path := c.Paths[""]
	if path == "" {
		return nil
	}
	return wrapCgroup("remove", c, rmdir(filepath.Join(v.mount, path), deadline))
}

// Close leaves a cgroup that is not empty, or not its own, as it is.
func (v v2) Close() { _ = unix.Rmdir(filepath.Join(v.mount, v.parent)) }

func (v v2) Sweep(keep func(string) bool) ([]string, error) {
	found, err := others(filepath.Join(v.mount, v.parent), keep)
	removed, errRemove := removeAll(found, func(vm string, deadline time.Time) error { return v.removeBy(v.Plan(vm), deadline) })
	return removed, errors.Join(err, errRemove)
}
