package usage

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/housekeeping"
	"github.com/vmlet/vmlet/sysfs"
)

// Subject is the VMM of a running VM.
type Subject struct {
	// PID of the VMM, and of the shim that is its parent: another process that was
	// given the id later is not taken for it. Shim 0: not known.
	PID, Shim int
	// VCPUs is how many virtual CPUs it has, and Threads how theirs are called.
	VCPUs   int
	Threads hypervisor.ThreadNames
	// Cgroup is the path of the VM's own cgroup, in any hierarchy; empty: it has none.
	Cgroup string
	// Taps is how many it has.
	Taps int
}

// Usage is what it has taken since it was started, and has now.
type Usage struct {
	// CPU time of all that is in its cgroup, else of the VMM's process.
	CPU *CPU
	// Resident is how much memory is mapped and there, of the VMM's process, in bytes.
	Resident *uint64
	// Charged is how much memory its cgroup is charged with, in bytes.
	Charged *uint64
	// VCPUs are those whose threads were found, each once.
	VCPUs []VCPU
	// Taps are in the order of the specification; nil: not known. Counters are as
	// the guest sees them.
	Taps []*Traffic
}

// CPU is CPU time. User and System need not add up to Total.
type CPU struct{ Total, User, System time.Duration }

// VCPU is one virtual CPU's thread.
type VCPU struct {
	ID int
	// Run is how long it ran, Delay how long it could have and another did.
	Run   time.Duration
	Delay *time.Duration
	// Wait is as the scheduler's debugging has it (wait_sum); kernels count it
	// only with kernel.sched_schedstats.
	Wait *time.Duration
}

// Traffic is what went through a network interface.
type Traffic struct{ Received, Transmitted Flow }

// Flow is one direction.
type Flow struct{ Bytes, Packets, Errors, Dropped uint64 }

// maxThreads is how many threads are looked at for virtual CPUs: a VMM with more
// is none that works as it should.
const maxThreads = 4096

// Round is one look at several VMs, which may go on concurrently: what they have
// in common is read once.
type Round struct {
	roots      sysfs.Roots
	threads    *Threads
	now        time.Time
	mounted    []hierarchies
	schedstats bool

	mu       sync.Mutex
	networks map[string]func() procfs.NetDev // by network namespace
}

// NewRound begins one, at this time.
func NewRound(roots sysfs.Roots, threads *Threads, now time.Time) *Round {
	threads.sweep(now)
	r := &Round{roots: roots, threads: threads, now: now, networks: make(map[string]func() procfs.NetDev)}
	r.mounted = mounted(roots)
	on, err := read(roots.ProcPath("sys/kernel/sched_schedstats"))
	r.schedstats = err == nil && trim(on) == "1"
	return r
}

// Read says what a VM uses. The error wraps fs.ErrNotExist if its VMM is not
// there any more.
func (r *Round) Read(s Subject) (Usage, error) {
	var u Usage
	stat, err := r.stat(s)
	if err != nil {
		return u, err
	}
	cgroups := r.cgroups(s)
	u.CPU = cgroups.cpu()
	if u.CPU == nil {
		u.CPU = &CPU{Total: stat.user + stat.system, User: stat.user, System: stat.system}
	}
	u.Charged = cgroups.memory()
	u.Resident = r.resident(s.PID)
	u.VCPUs = r.vcpus(s, stat)
	u.Taps = r.taps(s)
	return u, nil
}

// stat reads the VMM's own, and sees that it is the VMM's.
func (r *Round) stat(s Subject) (stat, error) {
	path := r.proc(s.PID, "stat")
	text, err := read(path)
	if err != nil {
		return stat{}, err
	}
	st, ok := parseStat(text)
	if !ok {
		return stat{}, fmt.Errorf("%s: %.100q is not as proc_pid_stat(5) has it", path, text)
	}
	if s.Shim != 0 && st.parent != s.Shim {
		return stat{}, fmt.Errorf("process %d is no child of the shim, process %d: %w", s.PID, s.Shim, os.ErrNotExist)
	}
	return st, nil
}

func (r *Round) proc(pid int, parts ...string) string {
	return r.roots.ProcPath(append([]string{strconv.Itoa(pid)}, parts...)...)
}

// resident is the second number of statm, in pages (proc_pid_statm(5)).
func (r *Round) resident(pid int) *uint64 {
	text, err := read(r.proc(pid, "statm"))
	if err != nil {
		return nil
	}
	pages, ok := field(text, 1)
	if !ok || pages > 1<<50 {
		return nil
	}
	bytes := pages * uint64(os.Getpagesize())
	return &bytes
}

// vcpus are those that the VM should have: anything more is a thread that only
// bears such a name.
func (r *Round) vcpus(s Subject, st stat) []VCPU {
	if st.threads > maxThreads || s.Threads.VCPU == "" {
		return nil
	}
	var out []VCPU
	next := -1
	for _, t := range r.threads.vcpus(r.roots, s, r.now) {
		if t.VCPU <= next || t.VCPU >= s.VCPUs {
			continue
		}
		v, ok := r.vcpu(t)
		if !ok {
			r.threads.forget(s)
			continue
		}
		out, next = append(out, v), t.VCPU
	}
	if len(out) < s.VCPUs {
		r.threads.forget(s) // more may come
	}
	return out
}

// vcpu reads how long a thread ran and waited, in nanoseconds
// (Documentation/scheduler/sched-stats.rst); kernels that don't count that have
// the time in ticks.
func (r *Round) vcpu(t housekeeping.Thread) (VCPU, bool) {
	v := VCPU{ID: t.VCPU}
	task := func(name string) (string, error) {
		return read(r.proc(t.PID, "task", strconv.Itoa(t.TID), name))
	}
	if text, err := task("schedstat"); err == nil {
		run, ok := nanoseconds(text, 0)
		delay, ok2 := nanoseconds(text, 1)
		if !ok || !ok2 {
			return v, false
		}
		v.Run, v.Delay = run, &delay
	} else if text, err := task("stat"); err == nil {
		st, ok := parseStat(text)
		if !ok {
			return v, false
		}
		v.Run = st.user + st.system
	} else {
		return v, false
	}
	if r.schedstats {
		if text, err := task("sched"); err == nil {
			v.Wait = waitSum(text)
		}
	}
	return v, true
}
