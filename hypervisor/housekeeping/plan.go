package housekeeping

import (
	"fmt"

	"github.com/vmlet/vmlet/sysfs"
)

// CgroupName is the child of a VM's cgroup that its threads are moved to which are no virtual CPUs.
const CgroupName = "housekeeping"

// Policy is how a thread is scheduled (sched(7)).
type Policy int

const (
	PolicyKeep Policy = iota // as it is
	PolicyFIFO               // SCHED_FIFO: realtime
)

// realtimePriority is the lowest there is: it is above every ordinary thread, and below the kernel's own realtime ones.
const realtimePriority = 1

// Request is what a VM is to have.
type Request struct {
	// CPUs are dedicated to the VM, in the order in which its virtual CPUs have them; see Choose.
	CPUs []int
	// VCPUs is how many virtual CPUs the VM has.
	VCPUs int
	// IsolateEmulator keeps all other threads off the virtual CPUs' processors: on those of CPUs that are left over.
	IsolateEmulator bool
	// Realtime gives virtual CPUs realtime priority.
	Realtime bool
}

// Action is what is to be done with one thread.
type Action struct {
	Thread Thread
	// CPUs that it may run on; empty: as it is.
	CPUs sysfs.IDList
	// Policy, with its priority.
	Policy   Policy
	Priority int
	// Cgroup is the child of the VM's cgroup that it is moved to; empty: it stays.
	Cgroup string
}

// Plan says what to do with each thread. It changes nothing: see Apply. Virtual CPU n gets the n-th of the processors. All other
// threads get those that are left over, in a cgroup of their own, where they are to be isolated, and all of them where not. The
// kernel's interval timer goes where virtual CPU 0 is, which it interrupts.
//
// That a virtual CPU has no thread is an error: the names don't fit the VMM, or it is not up yet.
func Plan(found *Found, r Request) ([]Action, error) {
	placed, rest, err := r.place(found)
	if err != nil {
		return nil, err
	}
	var actions []Action
	for _, t := range found.Threads {
		a := Action{Thread: t}
		switch t.Kind {
		case VCPU:
			a.CPUs = sysfs.IDList{placed[t.VCPU]}
			if r.Realtime {
				a.Policy, a.Priority = PolicyFIFO, realtimePriority
			}
		case PIT:
			a.CPUs = sysfs.IDList{placed[0]}
		case Emulator, IO:
			a.CPUs = rest
			if r.IsolateEmulator {
				a.Cgroup = CgroupName
			}
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// place gives each virtual CPU its processor, and the others what is left.
func (r Request) place(found *Found) (placed map[int]int, rest sysfs.IDList, err error) {
	wanted := r.VCPUs
	if r.IsolateEmulator {
		wanted++
	}
	if r.VCPUs < 1 || len(r.CPUs) < wanted {
		return nil, nil, fmt.Errorf("%d dedicated CPUs for %d virtual ones%s: want at least %d", len(r.CPUs), r.VCPUs,
			map[bool]string{true: " and isolated emulator threads"}[r.IsolateEmulator], max(wanted, 1))
	}
	all := (&Chosen{CPUs: r.CPUs}).List()
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			return nil, nil, fmt.Errorf("CPU %d is dedicated twice", all[i])
		}
	}
	placed = make(map[int]int)
	for _, t := range found.VCPUs() {
		switch _, twice := placed[t.VCPU]; {
		case twice:
			return nil, nil, fmt.Errorf("two threads are called %q", t.Name)
		case t.VCPU >= r.VCPUs:
			return nil, nil, fmt.Errorf("the thread %q is a virtual CPU that the VM with its %d doesn't have", t.Name, r.VCPUs)
		}
		placed[t.VCPU] = r.CPUs[t.VCPU]
	}
	if len(placed) < r.VCPUs {
		return nil, nil, fmt.Errorf("%d of %d virtual CPUs have a thread with a name that is known: the VMM is not up yet, or doesn't name its threads (QEMU: -name debug-threads=on)", len(placed), r.VCPUs)
	}
	if !r.IsolateEmulator {
		return placed, all, nil
	}
	return placed, (&Chosen{CPUs: r.CPUs[r.VCPUs:]}).List(), nil
}
