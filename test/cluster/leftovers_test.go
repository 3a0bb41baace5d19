package cluster_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/suites"
)

// population is what runs in a cluster.
type population struct {
	name       string
	pids       []string
	namespaces map[string]bool
}

// processes are those in a cluster's cgroup, and the namespaces that only they
// are in.
func processes(t *testing.T, folder string) population {
	t.Helper()
	p := population{name: filepath.Base(folder), namespaces: make(map[string]bool)}
	p.pids = inCgroup(p.name)
	for _, pid := range p.pids {
		for _, kind := range []string{"pid", "mnt", "net", "uts"} {
			if ns, own := namespace(pid, kind); own {
				p.namespaces[ns] = true
			}
		}
	}
	if len(p.namespaces) < 4 {
		t.Errorf("%s has no namespaces of its own: %v", p.name, p.namespaces)
	}
	return p
}

func inCgroup(name string) []string {
	var pids []string
	for _, pid := range all() {
		if cgroups, err := os.ReadFile("/proc/" + pid + "/cgroup"); err == nil && strings.Contains(string(cgroups), "/"+name) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func all() []string {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for i, f := range folders {
		folders[i] = filepath.Base(f)
	}
	return folders
}

// namespace is one of a process's, and whether it is another than this one's.
func namespace(pid, kind string) (string, bool) {
	ns, err := os.Readlink("/proc/" + pid + "/ns/" + kind)
	ours, errOurs := os.Readlink("/proc/self/ns/" + kind)
	return ns, err == nil && errOurs == nil && ns != ours
}

// waitGone waits until no process is in the cluster's cgroup, nor in one of its
// namespaces.
func (p population) waitGone(t *testing.T) {
	t.Helper()
	var left []string
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		left = inCgroup(p.name)
		for _, pid := range all() {
			for _, kind := range []string{"pid", "mnt", "net", "uts"} {
				if ns, own := namespace(pid, kind); own && p.namespaces[ns] {
					left = append(left, pid)
				}
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("of %s these processes are left: %v", p.name, left)
}

// waitNoAddress waits until the interface with an address has gone: the kernel
// removes it some time after the last process of its other end's namespace.
func waitNoAddress(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if !hasAddress(t, address) {
			return
		}
	}
	t.Errorf("the machine's interface with %s is left", address)
}

// wantNothingLeft looks for what a cluster has outside of its namespaces.
func wantNothingLeft(t *testing.T, folder string) {
	t.Helper()
	name := filepath.Base(folder)
	cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	own, _ := filepath.Glob("/sys/fs/cgroup/" + name)
	for _, left := range append(append(cgroups, own...), folder) {
		if _, err := os.Lstat(left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
	mounts, err := readFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(mounts, name) {
		t.Errorf("mounts of %s are left", name)
	}
}

// sysctls are settings that a kubelet changes.
func sysctls(t *testing.T) string {
	t.Helper()
	var values strings.Builder
	for _, file := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward"} {
		value, err := readFile("/proc/sys/" + file)
		if err != nil {
			t.Fatal(err)
		}
		values.WriteString(file + " " + value)
	}
	return values.String()
}

// hasAddress says whether the machine still has its end of the wire to a node.
func hasAddress(t *testing.T, address string) bool {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if strings.HasPrefix(a.String(), address+"/") {
			return true
		}
	}
	return false
}
