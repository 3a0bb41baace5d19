// Package usagetest makes up the part of /proc and of the cgroups that a running
// VM is seen by.
package usagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs"
)

// Machine is a made-up one, in a folder.
type Machine struct {
	t    testing.TB
	root string
	// Unified: it has cgroup v2, else v1 and an empty v2.
	Unified bool
}

// NewMachine makes one.
func NewMachine(t testing.TB, unified bool) *Machine {
	m := &Machine{t: t, root: t.TempDir(), Unified: unified}
	m.File("proc/sys/kernel/sched_schedstats", "0\n")
	if unified {
		m.File("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	}
	return m
}

// Roots are where it is.
func (m *Machine) Roots() sysfs.Roots {
	return sysfs.Roots{Sys: filepath.Join(m.root, "sys"), Proc: filepath.Join(m.root, "proc"), Dev: filepath.Join(m.root, "dev")}
}

// File writes a file, by its path below the machine's root.
func (m *Machine) File(path, content string) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(filepath.Join(m.root, path)), 0o755))
	m.must(os.WriteFile(filepath.Join(m.root, path), []byte(content), 0o644))
}

// Link makes a symbolic link.
func (m *Machine) Link(path, to string) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(filepath.Join(m.root, path)), 0o755))
	m.must(os.Symlink(to, filepath.Join(m.root, path)))
}

func (m *Machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// VMM is a process of the machine.
type VMM struct {
	PID, Shim int
	// Threads are the names of those beside the first.
	Threads []string
	// Cgroup is the path of its own in all hierarchies.
	Cgroup string
	// Taps that it has open.
	Taps []string
}

// Add makes its files. Its figures follow from its process id.
func (m *Machine) Add(v VMM) {
	n := v.PID
	p := func(parts ...string) string {
		return filepath.Join(append([]string{"proc", strconv.Itoa(n)}, parts...)...)
	}
	m.File(p("stat"), Stat(n, "qemu (x) R", v.Shim, 1+len(v.Threads), 100*n, 50*n))
	m.File(p("statm"), fmt.Sprintf("%d %d 10 5 0 7 0\n", 1000*n, 10*n))
	for i, name := range append([]string{"qemu-system-x86"}, v.Threads...) {
		task := p("task", strconv.Itoa(n+i))
		m.File(task+"/comm", name+"\n")
		m.File(task+"/schedstat", fmt.Sprintf("%d %d 9\n", (n+i)*1_000_000_000, (n+i)*1_000_000))
		m.File(task+"/sched", fmt.Sprintf("%s (%d, #threads: 9)\n-----\nse.vruntime  :  1.0\nwait_sum     :     %d.500000\n", name, n+i, n+i))
		m.File(task+"/stat", Stat(n+i, name, v.Shim, 1+len(v.Threads), 10*(n+i), 5*(n+i)))
	}
	for i, tap := range v.Taps {
		fd := strconv.Itoa(20 - i) // not in the order of their names
		m.Link(p("fd", fd), "/dev/net/tun")
		m.File(p("fdinfo", fd), "pos:\t0\nflags:\t0104002\niff:\t"+tap+"\n")
	}
	m.Link(p("fd", "3"), "/dev/null")
	m.Link(p("ns", "net"), "net:[4026531840]")
	m.File(p("net", "dev"), netDev(v.Taps, n))
	m.cgroups(v, p("cgroup"))
}

func (m *Machine) cgroups(v VMM, file string) {
	n := v.PID
	at := v.Cgroup
	if at == "" {
		at = "/agent"
	}
	if m.Unified {
		m.File(file, "0::"+at+"\n")
		folder := filepath.Join("sys/fs/cgroup", at)
		m.File(folder+"/cpu.stat", fmt.Sprintf("usage_usec %d\nuser_usec %d\nsystem_usec %d\nnr_periods 0\n", n*1_000_000, n*600_000, n*400_000))
		m.File(folder+"/memory.current", fmt.Sprintln(n<<20))
		return
	}
	m.File(file, fmt.Sprintf("9:name=systemd:/\n4:memory:%s\n2:cpu,cpuacct:%s\n0::/\n", at, at))
	m.File("sys/fs/cgroup/cpuacct"+at+"/cpuacct.usage", fmt.Sprintln(n*1_000_000_000))
	m.File("sys/fs/cgroup/cpuacct"+at+"/cpuacct.usage_user", fmt.Sprintln(n*600_000_000))
	m.File("sys/fs/cgroup/cpuacct"+at+"/cpuacct.usage_sys", fmt.Sprintln(n*400_000_000))
	m.File("sys/fs/cgroup/memory"+at+"/memory.usage_in_bytes", fmt.Sprintln(n<<20))
}

// Stat is the text of a stat file (proc_pid_stat(5)).
func Stat(pid int, name string, parent, threads, user, system int) string {
	return fmt.Sprintf("%d (%s) S %d 1 1 0 -1 138412416 5275 0 37 0 %d %d 0 0 20 0 %d 0 1239444 1522995200 9780 18446744073709551615 0\n",
		pid, name, parent, user, system, threads)
}

func netDev(taps []string, n int) string {
	var b strings.Builder
	b.WriteString("Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		"    lo:    9586     122    0    0    0     0          0         0     9586     122    0    0    0     0       0          0\n")
	for i, tap := range taps {
		k := n + i
		fmt.Fprintf(&b, "%6s: %d %d %d %d 0 0 0 0 %d %d %d %d 0 0 0 0\n", tap, 1000*k, 100*k, 10*k, k, 2000*k, 200*k, 20*k, 2*k)
	}
	return b.String()
}

// Remove removes a file.
func (m *Machine) Remove(path string) {
	m.t.Helper()
	m.must(os.Remove(filepath.Join(m.root, path)))
}

// Move renames a file or folder.
func (m *Machine) Move(path, to string) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(filepath.Join(m.root, to)), 0o755))
	m.must(os.Rename(filepath.Join(m.root, path), filepath.Join(m.root, to)))
}
