package usage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/usage"
	"github.com/vmlet/vmlet/agent/usage/usagetest"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/sysfs"
)

func subject() usage.Subject {
	return usage.Subject{
		PID: 100, Shim: 99, VCPUs: 2, Cgroup: "/vmlet/web",
		Threads: hypervisor.ThreadNames{VCPU: `^CPU (\d+)/KVM$`, PIT: "kvm-pit/"},
	}
}

// round is one that remembers nothing.
func round(roots sysfs.Roots) *usage.Round {
	return usage.NewRound(roots, usage.NewThreads(), time.Now())
}

func vmm() usagetest.VMM {
	return usagetest.VMM{PID: 100, Shim: 99, Cgroup: "/vmlet/web", Threads: []string{"IO mon_iothread", "CPU 1/KVM", "CPU 0/KVM", "worker"}}
}

// text is a usage in words, so that what is not known can be told from 0.
func text(u usage.Usage) string {
	var b strings.Builder
	if u.CPU != nil {
		fmt.Fprintf(&b, "cpu %v %v %v; ", u.CPU.Total, u.CPU.User, u.CPU.System)
	}
	if u.Resident != nil {
		fmt.Fprintf(&b, "resident %d pages; ", *u.Resident/uint64(os.Getpagesize()))
	}
	if u.Charged != nil {
		fmt.Fprintf(&b, "charged %d; ", *u.Charged)
	}
	for _, v := range u.VCPUs {
		fmt.Fprintf(&b, "vcpu%d ran %v", v.ID, v.Run)
		if v.Delay != nil {
			fmt.Fprintf(&b, " delayed %v", *v.Delay)
		}
		if v.Wait != nil {
			fmt.Fprintf(&b, " waited %v", *v.Wait)
		}
		b.WriteString("; ")
	}
	for _, t := range u.Taps {
		if t == nil {
			b.WriteString("no tap; ")
			continue
		}
		fmt.Fprintf(&b, "tap %v; ", *t)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

const usual = "cpu 1m40s 1m0s 40s; resident 1000 pages; charged 104857600; vcpu0 ran 1m43s delayed 103ms; vcpu1 ran 1m42s delayed 102ms"

func TestRead(t *testing.T) {
	v1, v2 := "sys/fs/cgroup/cpuacct/vmlet/web/", "sys/fs/cgroup/vmlet/web/"
	ofProcess := strings.Replace(usual, "cpu 1m40s 1m0s 40s", "cpu 2m30s 1m40s 50s", 1)
	for name, c := range map[string]struct {
		v1      bool
		vmm     func(*usagetest.VMM)
		subject func(*usage.Subject)
		machine func(*usagetest.Machine)
		want    string
	}{
		"v2": {want: usual},
		"v1": {v1: true, want: usual},
		"the scheduler's statistics are on": {
			machine: func(m *usagetest.Machine) { m.File("proc/sys/kernel/sched_schedstats", "1\n") },
			want:    strings.NewReplacer("103ms", "103ms waited 103.5ms", "102ms", "102ms waited 102.5ms").Replace(usual),
		},
		"no cgroup of its own": {
			subject: func(s *usage.Subject) { s.Cgroup = "" },
			want:    strings.Replace(ofProcess, "charged 104857600; ", "", 1),
		},
		"it is not in its cgroup": {
			vmm:  func(v *usagetest.VMM) { v.Cgroup = "/agent" },
			want: strings.Replace(ofProcess, "charged 104857600; ", "", 1),
		},
		"seen from a cgroup namespace": {
			machine: func(m *usagetest.Machine) { m.File("proc/100/cgroup", "0::/../../vmlet/web\n") },
			want:    strings.Replace(ofProcess, "charged 104857600; ", "", 1),
		},
		"v1, seen from a container": {
			v1:      true,
			machine: func(m *usagetest.Machine) { m.Move("sys/fs/cgroup", "proc/1/root/sys/fs/cgroup") },
			want:    usual,
		},
		"v2, seen from a container": {
			machine: func(m *usagetest.Machine) { m.Move("sys/fs/cgroup", "proc/1/root/sys/fs/cgroup") },
			want:    usual,
		},
		"cgroups that can't be seen": {
			machine: func(m *usagetest.Machine) { m.Move("sys/fs/cgroup", "elsewhere") },
			want:    strings.Replace(ofProcess, "charged 104857600; ", "", 1),
		},
		"a cgroup's file makes no sense": {
			machine: func(m *usagetest.Machine) { m.File(v2+"cpu.stat", "usage_usec 18446744073709551615\nuser_usec x\n") },
			want:    ofProcess,
		},
		"a file of v1 is missing": {
			v1:      true,
			machine: func(m *usagetest.Machine) { m.File(v1+"cpuacct.usage_user", "") },
			want:    ofProcess,
		},
		"fewer virtual CPUs than threads of that name": {
			subject: func(s *usage.Subject) { s.VCPUs = 1 },
			want:    strings.Replace(usual, "; vcpu1 ran 1m42s delayed 102ms", "", 1),
		},
		"two threads of one name": {
			vmm:  func(v *usagetest.VMM) { v.Threads = append(v.Threads, "CPU 0/KVM", "CPU 1/KVM") },
			want: usual,
		},
		"threads that can't be told": {
			subject: func(s *usage.Subject) { s.Threads = hypervisor.ThreadNames{} },
			want:    "cpu 1m40s 1m0s 40s; resident 1000 pages; charged 104857600",
		},
		"a kernel that doesn't count delays": {
			machine: func(m *usagetest.Machine) { m.Remove("proc/100/task/103/schedstat") },
			want:    strings.Replace(usual, "vcpu0 ran 1m43s delayed 103ms", "vcpu0 ran 15.45s", 1),
		},
		"more threads than any VMM has": {
			machine: func(m *usagetest.Machine) {
				m.File("proc/100/stat", usagetest.Stat(100, "qemu", 99, 5000, 10000, 5000))
			},
			want: "cpu 1m40s 1m0s 40s; resident 1000 pages; charged 104857600",
		},
		"taps, as the guest sees them": {
			vmm:     func(v *usagetest.VMM) { v.Taps = []string{"vmlet7", "vmlet2"} },
			subject: func(s *usage.Subject) { s.Taps = 2 },
			want: usual + "; tap {{202000 20200 2020 202} {101000 10100 1010 101}}" +
				"; tap {{200000 20000 2000 200} {100000 10000 1000 100}}",
		},
		"one tap is in another network namespace": {
			vmm:     func(v *usagetest.VMM) { v.Taps = []string{"vmlet7", "vmlet2"} },
			subject: func(s *usage.Subject) { s.Taps = 2 },
			machine: func(m *usagetest.Machine) { m.File("proc/100/fdinfo/20", "iff:\telsewhere0\n") },
			want:    usual + "; tap {{202000 20200 2020 202} {101000 10100 1010 101}}; no tap",
		},
		"a tap too many": {
			vmm:     func(v *usagetest.VMM) { v.Taps = []string{"vmlet7", "vmlet2"} },
			subject: func(s *usage.Subject) { s.Taps = 1 },
			want:    usual,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, v, s := usagetest.NewMachine(t, !c.v1), vmm(), subject()
			if c.vmm != nil {
				c.vmm(&v)
			}
			m.Add(v)
			if c.machine != nil {
				c.machine(m)
			}
			if c.subject != nil {
				c.subject(&s)
			}
			u, err := round(m.Roots()).Read(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(u); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	m := usagetest.NewMachine(t, true)
	m.Add(vmm())
	for name, c := range map[string]struct {
		change func(*usage.Subject)
		gone   bool
	}{
		"it has ended":                      {func(s *usage.Subject) { s.PID = 7 }, true},
		"another process has the id by now": {func(s *usage.Subject) { s.Shim = 98 }, true},
	} {
		s := subject()
		c.change(&s)
		if u, err := round(m.Roots()).Read(s); errors.Is(err, fs.ErrNotExist) != c.gone || err == nil {
			t.Errorf("%s: %s, %v", name, text(u), err)
		}
	}
	for _, odd := range []string{"", "100", "100 (x", "100 (x) S", "100 (x) S 99 1 1 0 -1 1 1 1 1 1 9223372036854775807 1 1 1 1 1 1 1", "100 (x) S -1 1 1 0 -1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		m.File("proc/100/stat", odd)
		if u, err := round(m.Roots()).Read(subject()); err == nil {
			t.Errorf("stat %q: %s", odd, text(u))
		}
	}
}

// TestReadOwnKernel reads a process of this machine.
func TestReadOwnKernel(t *testing.T) {
	// It keeps its parent, and is asked while it runs.
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	s := usage.Subject{PID: cmd.Process.Pid, Shim: os.Getpid(), VCPUs: 1, Threads: hypervisor.ThreadNames{VCPU: `^(?:sleep|)(\d*)$`}}
	u, err := round(sysfs.Roots{}).Read(s)
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU == nil || u.CPU.Total > time.Minute || u.Resident == nil || *u.Resident == 0 {
		t.Errorf("a process that sleeps: %s", text(u))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(usagetest.Stat(1, "a) b", 2, 3, 4, 5), "usage_usec 1\nuser_usec 2\nsystem_usec 3\n", "0::/vmlet/web\n", "1 2 3")
	f.Fuzz(func(t *testing.T, stat, cpu, cgroup, sched string) {
		m := usagetest.NewMachine(t, true)
		m.Add(vmm())
		m.File("proc/sys/kernel/sched_schedstats", "1")
		m.File("proc/100/stat", stat)
		m.File("proc/100/statm", sched)
		m.File("proc/100/cgroup", cgroup)
		m.File("proc/100/task/103/schedstat", sched)
		m.File("proc/100/task/103/sched", cpu)
		m.File("sys/fs/cgroup/vmlet/web/cpu.stat", cpu)
		u, err := round(m.Roots()).Read(subject())
		if err == nil && (u.CPU == nil || u.CPU.Total < 0 || u.CPU.User < 0 || u.CPU.System < 0) {
			t.Errorf("%s", text(u))
		}
		for _, v := range u.VCPUs {
			if v.Run < 0 || (v.Delay != nil && *v.Delay < 0) || (v.Wait != nil && *v.Wait < 0) {
				t.Errorf("%s", text(u))
			}
		}
	})
}

// TestThreadsAreRemembered for a while, and looked for again where one has ended.
func TestThreadsAreRemembered(t *testing.T) {
	m := usagetest.NewMachine(t, true)
	m.Add(vmm())
	threads, now := usage.NewThreads(), time.Unix(1000, 0)
	read := func(after time.Duration) string {
		t.Helper()
		now = now.Add(after)
		u, err := usage.NewRound(m.Roots(), threads, now).Read(subject())
		if err != nil {
			t.Fatal(err)
		}
		return text(u)
	}
	if got := read(0); got != usual {
		t.Fatal(got)
	}
	m.File("proc/100/task/104/comm", "CPU 0/KVM\n")
	m.File("proc/100/task/103/comm", "worker\n")
	if got := read(29 * time.Second); got != usual {
		t.Errorf("looked for again at once: %s", got)
	}
	other := strings.Replace(usual, "1m43s delayed 103ms", "1m44s delayed 104ms", 1)
	if got := read(time.Second); got != other {
		t.Errorf("not looked for again: %s", got)
	}
	// One ends, and another takes its place.
	m.Remove("proc/100/task/104/schedstat")
	m.Remove("proc/100/task/104/stat")
	m.File("proc/100/task/104/comm", "worker\n")
	m.File("proc/100/task/103/comm", "CPU 0/KVM\n")
	if got := read(time.Second); strings.Contains(got, "vcpu0") || !strings.Contains(got, "vcpu1") {
		t.Errorf("a thread that has ended: %s", got)
	}
	if got := read(time.Second); got != usual {
		t.Errorf("not found again: %s", got)
	}
}
