package host

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

func TestPlaceUnified(t *testing.T) {
	const own = "/system.slice/vmlet.service"
	for _, c := range []struct {
		name, parent, own string
		systemd           bool
		slice, path, err  string
	}{
		{"systemd", "", own, true, "vmlet.slice", "/vmlet", ""},
		{"no systemd", "", "/", false, "", "/vmlet", ""},
		{"a slice", "/machine.slice/machine-vm.slice", own, true, "machine-vm.slice", "", ""},
		{"a slice elsewhere", "/machine-vm.slice", own, true, "", "", "systemd has machine-vm.slice at /machine.slice/machine-vm.slice"},
		{"a name like a slice's", "/vm.slice", "/", false, "", "/vm.slice", ""},
		{"a parent", "/vms", own, true, "", "/vms", ""},
		{"a parent beside the agent's", own + "-vms", own, true, "", own + "-vms", ""},
		{"a parent in the agent's", own + "/vms", own, true, "", "", "in the agent's own cgroup " + own},
		{"the agent's", own, own, true, "", "", "in the agent's own cgroup " + own},
		{"an agent at the root", "/vms", "/", true, "", "/vms", ""},
	} {
		slice, path, err := placeUnified(c.parent, "vmlet", c.own, c.systemd)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || slice != c.slice || path != c.path {
			t.Errorf("%s: %q %q %v, want %q %q", c.name, slice, path, err, c.slice, c.path)
		}
	}
}

// silent is for warnings that no test looks at.
func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// ownParent is the parent for NewCgroups of a test's own agent: systemd makes no cgroups
// without processes, nor for more than one.
func ownParent(folder string) string {
	if cgroups.Mode() == cgroups.Unified {
		return "/" + folder
	}
	return ""
}

// unifiedMount is where cgroup v2 is mounted, beside v1 or alone.
func unifiedMount() (mount string, mounted bool) {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return cgroupMount, true
	case cgroups.Hybrid:
		return cgroupMount + "/unified", true
	}
	return "", false
}

// ownCgroups are those of a test's own agent.
func ownCgroups(t *testing.T) Cgroups {
	t.Helper()
	needRoot(t)
	folder := "vmlet-test-" + t.Name()
	groups, err := NewCgroups(ownParent(folder), folder, silent())
	if errors.Is(err, ErrNoCgroups) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(groups.Close)
	return groups
}

// TestJoinFails: a process that does not get into its cgroup is an error only if cgroups
// are required, and is known not to be there.
func TestJoinFails(t *testing.T) {
	h := &Host{cgroups: ownCgroups(t), log: silent()}
	c := h.PlanCgroup("web", 0) // nobody makes it
	nothing := func(*syscall.SysProcAttr) (int, error) { return os.Getpid(), nil }
	if joined, err := h.StartInCgroup(c, nothing); joined || err != nil {
		t.Errorf("joined %v, %v; want a warning", joined, err)
	}
	h.required = true
	if joined, err := h.StartInCgroup(c, nothing); joined || err == nil {
		t.Errorf("required: joined %v, %v; want an error", joined, err)
	}
}

// foreignCgroup is somebody else's in groups' parent, where a VM of that name would be.
func foreignCgroup(t *testing.T, groups Cgroups, vm string) (folder string) {
	t.Helper()
	switch g := groups.(type) {
	case *v1:
		folder, _ = g.folder(g.hierarchy[0], g.Plan(vm))
	case v2:
		folder = g.folder(g.Plan(vm).Paths[""])
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []string{folder, filepath.Dir(folder)} {
			if err := rmdir(f, soon()); err != nil {
				t.Error(err)
			}
		}
	})
	return folder
}

// TestForeignCgroups: what others have in the same parent is neither swept, nor taken for
// a VM's while they use it.
func TestForeignCgroups(t *testing.T) {
	needRoot(t)
	if cgroups.Mode() == cgroups.Unified { // or OpenV2 makes the parent, as vmlet's own
		if err := os.Mkdir(cgroupMount+ownParent("vmlet-test-"+t.Name()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	groups := ownCgroups(t)
	folder := foreignCgroup(t, groups, "web")
	if swept, err := groups.Sweep(func(string) bool { return false }); err != nil || len(swept) > 0 {
		t.Errorf("swept %q, %v", swept, err)
	}
	process := sleeper(t, 0)
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(process.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if swept, err := groups.Sweep(func(string) bool { return false }); err != nil || len(swept) > 0 {
		t.Errorf("swept %q, %v from under a process", swept, err)
	}
	if err := groups.Make(groups.Plan("web")); err == nil || !strings.Contains(err.Error(), "set cgroup.parent") {
		t.Errorf("a VM in it: %v", err)
	}
	_ = process.Process.Kill()
	killed(t, process)
	if err := rmdir(folder, soon()); err != nil {
		t.Fatal(err)
	}
	groups.Close()
	if _, err := os.Stat(filepath.Dir(folder)); err != nil {
		t.Errorf("the parent, which vmlet has not made: %v", err)
	}
}

// TestControllersByLevel: each level gets the controller that it lacks, from the one that
// is delegated on.
func TestControllersByLevel(t *testing.T) {
	v := v2{t.TempDir(), "/unit/vms"}
	for path, enabled := range map[string]string{"/": "cpu", "/unit": "memory cpu", "/unit/vms": ""} {
		if err := os.MkdirAll(v.folder(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(v.folder(path)+"/cgroup.subtree_control", []byte(enabled), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{v.folder("/"), v.folder("/unit"), v.folder("/unit/vms")}; !slices.Equal(v.levels(), want) {
		t.Errorf("levels %q, want %q", v.levels(), want)
	}
	if err := unix.Setxattr(v.folder("/unit"), "trusted.delegate", []byte("1"), 0); err != nil {
		t.Skip("extended attributes: ", err)
	}
	if want := []string{v.folder("/unit"), v.folder("/unit/vms")}; !slices.Equal(v.levels(), want) {
		t.Errorf("levels from a delegated one on %q, want %q", v.levels(), want)
	}
	if err := enable(v.levels(), "cpu"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "cpu", "/unit": "memory cpu", "/unit/vms": "+cpu"} {
		if got, err := os.ReadFile(v.folder(path) + "/cgroup.subtree_control"); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v; want %q", path, got, err, want)
		}
	}
}

// TestControllersOneByOne: where a process keeps some controllers from a cgroup's children
// (cgroups(7), no internal processes), they have the others.
func TestControllersOneByOne(t *testing.T) {
	needRoot(t)
	if cgroups.Mode() != cgroups.Unified {
		t.Skip("cgroup v2 has no controllers here: v1 has them")
	}
	parent := "/vmlet-test-" + t.Name()
	folder := cgroupMount + parent
	if err := makeMarked(folder); err != nil {
		t.Fatal(err)
	}
	process := sleeper(t, 0)
	defer func() {
		_ = process.Process.Kill()
		killed(t, process)
		if err := rmdir(folder, soon()); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(folder+"/cgroup.procs", []byte(strconv.Itoa(process.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	if _, err := OpenV2(cgroupMount, parent, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	enabled, err := controllers(folder, "cgroup.subtree_control")
	if err != nil || !slices.Contains(enabled, "cpu") || slices.Contains(enabled, "memory") {
		t.Errorf("enabled %q, %v; want cpu, and not memory", enabled, err)
	}
	if !strings.Contains(log.String(), "controller=memory") || strings.Contains(log.String(), "controller=cpu ") {
		t.Errorf("logged: %s", log.String())
	}
}

// TestStartInCgroup: a process begins in its cgroup, and the agent stays where it is.
func TestStartInCgroup(t *testing.T) {
	groups := ownCgroups(t)
	h, c := &Host{cgroups: groups, required: true}, groups.Plan("web")
	before := cgroupOf(t, "self")
	if joined, err := h.StartInCgroup(c, func(*syscall.SysProcAttr) (int, error) { return 0, nil }); err == nil || joined {
		t.Errorf("joined %v, %v, though there is no cgroup", joined, err)
	}
	if err := groups.Make(c); err != nil {
		t.Fatal(err)
	}
	var in string
	joined, err := h.StartInCgroup(c, func(attr *syscall.SysProcAttr) (int, error) {
		cmd := exec.CommandContext(t.Context(), "cat", "/proc/self/cgroup")
		cmd.SysProcAttr = attr
		out, err := cmd.Output()
		in = string(out)
		return cmd.Process.Pid, err
	})
	if err != nil || !joined || !strings.Contains(in, c.Path()) {
		t.Errorf("the process begins in %s, joined %v, want %s: %v", in, joined, c.Path(), err)
	}
	if after := cgroupOf(t, "self"); after != before {
		t.Errorf("the agent was in %s and is in %s", before, after)
	}
	if err := groups.Remove(c); err != nil {
		t.Error(err)
	}
}

func cgroupOf(t *testing.T, process string) string {
	b, err := os.ReadFile("/proc/" + process + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
