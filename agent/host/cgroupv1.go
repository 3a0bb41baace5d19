package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// v1 has one hierarchy for each controller.
type v1 struct {
	hierarchy []cgroup1.Subsystem
	parents   map[string]string // by controller
}

// openV1 has each VM's cgroup at parent/VM in every controller's hierarchy;
// with an empty parent at folder/VM below the agent's own, so that what the
// agent is limited to holds for its VMs.
func openV1(parent, folder string) (Cgroups, error) {
	all, err := cgroup1.Default()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	where := cgroup1.NestedPath(folder)
	if parent != "" {
		where = cgroup1.StaticPath(parent)
	}
	v := &v1{parents: make(map[string]string)}
	for _, s := range all {
		path, err := where(s.Name())
		if errors.Is(err, cgroup1.ErrControllerNotActive) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cgroup of controller %s: %w", s.Name(), err)
		}
		v.hierarchy = append(v.hierarchy, s)
		v.parents[string(s.Name())] = path
	}
	if len(v.hierarchy) == 0 {
		return nil, ErrNoCgroups
	}
	return v, nil
}

func (v *v1) Plan(vm string) Cgroup {
	c := Cgroup{Version: 1, Paths: make(map[string]string)}
	for name, parent := range v.parents {
		c.Paths[name] = filepath.Join(parent, vm)
	}
	return c
}

func (v *v1) subsystems() ([]cgroup1.Subsystem, error) { return v.hierarchy, nil }

func path1(c Cgroup) cgroup1.Path {
	return func(name cgroup1.Name) (string, error) {
		if p, ok := c.Paths[string(name)]; ok {
			return p, nil
		}
		return "", cgroup1.ErrControllerNotActive
	}
}

func (v *v1) Make(c Cgroup) error {
	for _, s := range v.hierarchy {
		if err := v.makeMarked(s, c); err != nil {
			return wrapCgroup("make", c, fmt.Errorf("controller %s: %w", s.Name(), err))
		}
	}
	_, err := cgroup1.New(path1(c), &specs.LinuxResources{},
		cgroup1.WithHierarchy(v.subsystems), func(i *cgroup1.InitConfig) error { i.InitCheck = cgroup1.AllowAny; return nil })
	return wrapCgroup("make", c, err)
}

func (v *v1) makeMarked(s cgroup1.Subsystem, c Cgroup) error {
	folder, ok := v.folder(s, c)
	if !ok {
		return nil
	}
	if err := refuseForeign(folder); err != nil {
		return err
	}
	if err := makeMarked(filepath.Dir(folder)); err != nil {
		return err
	}
	return makeMarked(folder)
}

// Enter moves the calling thread, which takes no time: to move another process the
// kernel waits for an RCU grace period, up to 20 ms (cgroup_procs_write_start in
// kernel/cgroup/cgroup.c).
func (v *v1) Enter(c Cgroup, _ *syscall.SysProcAttr) (func(int) error, error) {
	for _, s := range v.hierarchy {
		folder, ok := v.folder(s, c)
		if !ok {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, "tasks"), []byte("0"), 0); err != nil {
			return nil, wrapCgroup("join", c, err)
		}
	}
	return func(int) error { return nil }, nil
}

func (v *v1) Add(c Cgroup, pid int) error {
	group, err := cgroup1.Load(path1(c), cgroup1.WithHierarchy(v.subsystems), func(i *cgroup1.InitConfig) error { i.InitCheck = cgroup1.AllowAny; return nil })
	if err == nil {
		err = group.AddProc(uint64(pid))
	}
	return wrapCgroup("join", c, err)
}

// Processes are the same in every hierarchy: one tells. The agent itself is listed while
// one of its threads has entered the cgroup, which ends there.
func (v *v1) Processes(c Cgroup) ([]int, error) {
	for _, s := range v.hierarchy {
		if folder, ok := v.folder(s, c); ok {
			pids, err := processesIn(folder)
			return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() }), err
		}
	}
	return nil, nil
}

func (v *v1) Remove(c Cgroup) error { return v.removeBy(c, soon()) }

func (v *v1) removeBy(c Cgroup, deadline time.Time) error {
	var errs []error
	for _, s := range v.hierarchy {
		folder, ok := v.folder(s, c)
		if !ok || c.Paths[string(s.Name())] == "/" {
			continue
		}
		if err := rmdir(folder, deadline); err != nil {
			errs = append(errs, fmt.Errorf("controller %s: %w", s.Name(), err))
		}
	}
	return wrapCgroup("remove", c, errors.Join(errs...))
}

// Close leaves cgroups that are not empty, or that vmlet has not made, as they are.
func (v *v1) Close() {
	for _, s := range v.hierarchy {
		if folder, ok := v.folder(s, Cgroup{Paths: v.parents}); ok {
			closeMarked(folder)
		}
	}
}

// folder is where a controller has a VM's cgroup.
func (v *v1) folder(s cgroup1.Subsystem, c Cgroup) (string, bool) {
	p, placed := s.(interface{ Path(string) string })
	path, has := c.Paths[string(s.Name())]
	if !placed || !has || path == "" {
		return "", false
	}
	return p.Path(path), true
}

func (v *v1) Sweep(keep func(string) bool) ([]string, error) {
	var found []string
	var errs []error
	for _, s := range v.hierarchy {
		if folder, ok := v.folder(s, Cgroup{Paths: v.parents}); ok {
			names, err := others(folder, keep)
			found, errs = append(found, names...), append(errs, err)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	removed, err := removeAll(found, func(vm string, deadline time.Time) error { return v.removeBy(v.Plan(vm), deadline) })
	return removed, errors.Join(append(errs, err)...)
}
