// Package dedicated gives each vCPU of a VM one of the node's CPUs to itself. Which CPUs these are was
// decided before by whoever made the cpuset that this process is in: in a pod the kubelet's static CPU
// manager. The package must not know of VMMs: it is told which of a process' threads run vCPUs. Start
// reading at Pin.
package dedicated

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Wanted is how CPUs are to be divided.
type Wanted struct {
	// VCPUs is how many vCPUs there are.
	VCPUs int
	// Isolate: the VMM's other threads have a CPU of their own, and not the vCPUs'.
	Isolate bool
}

// CPUs is how many CPUs it takes.
func (w Wanted) CPUs() int {
	if w.Isolate {
		return w.VCPUs + 1
	}
	return w.VCPUs
}

// Placement is which CPU each thread has.
type Placement struct {
	// VCPUs[i] is the CPU of vCPU i.
	VCPUs []int
	// Others are the CPUs of the VMM's other threads.
	Others []int
}

// Place divides CPUs. Those of one core stay together, whole cores first, so that vCPUs that the guest
// takes for threads of a core are, and the VMM gets a CPU whose core it does not share: core names the core
// of a CPU. There must be just as many as it takes: more are shared with
// others, and fewer are too few.
func Place(w Wanted, cpus []int, core func(cpu int) string) (Placement, error) {
	if len(cpus) != w.CPUs() {
		return Placement{}, fmt.Errorf("%d CPUs are wanted for %d vCPUs and the VMM, and there are %d (%s)", w.CPUs(), w.VCPUs, len(cpus), list(cpus))
	}
	first, size := make(map[string]int), make(map[string]int) // of each core, the lowest CPU and how many
	sorted := slices.Sorted(slices.Values(cpus))
	for _, cpu := range sorted {
		if size[core(cpu)]++; size[core(cpu)] == 1 {
			first[core(cpu)] = cpu
		}
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		return cmp.Or(cmp.Compare(size[core(b)], size[core(a)]), cmp.Compare(first[core(a)], first[core(b)]))
	})
	p := Placement{VCPUs: sorted[:w.VCPUs], Others: sorted}
	if w.Isolate {
		p.Others = sorted[w.VCPUs:]
	}
	return p, nil
}

// list has CPUs for people.
func list(cpus []int) string {
	const most = 16
	var words []string
	for _, cpu := range cpus[:min(len(cpus), most)] {
		words = append(words, strconv.Itoa(cpu))
	}
	if len(cpus) > most {
		words = append(words, "…")
	}
	return strings.Join(words, ",")
}

// Pin gives each thread of vcpus, which are thread ids of the process in the order of the vCPUs, a CPU,
// and the process' other threads theirs; threads that are made later have what their makers have. An
// error says what can't be done; threads may have been moved by then.
func Pin(pid int, vcpus []int, w Wanted) (Placement, error) {
	if len(vcpus) != w.VCPUs {
		return Placement{}, fmt.Errorf("the VMM has %d threads for %d vCPUs", len(vcpus), w.VCPUs)
	}
	cpus, err := own()
	if err != nil {
		return Placement{}, err
	}
	p, err := Place(w, cpus, coreOf)
	if err != nil {
		return Placement{}, err
	}
	for i, tid := range vcpus {
		if err := move(tid, p.VCPUs[i:i+1]); err != nil {
			return p, fmt.Errorf("vCPU %d: %w", i, err)
		}
	}
	return p, others(pid, vcpus, p.Others)
}

// maxRounds bounds how often threads are listed again because new ones had come.
const maxRounds = 16

// others moves the process' threads that run no vCPU, until none is new: a thread that is not moved yet
// may make another.
func others(pid int, vcpus, cpus []int) error {
	moved := make(map[int]bool)
	for range maxRounds {
		threads, err := threadsOf(pid)
		if err != nil {
			return err
		}
		before := len(moved)
		for _, tid := range threads {
			if moved[tid] || slices.Contains(vcpus, tid) {
				continue
			}
			if err := move(tid, cpus); err != nil && !errors.Is(err, unix.ESRCH) { // it may have ended
				return err
			}
			moved[tid] = true
		}
		if len(moved) == before {
			return nil
		}
	}
	return fmt.Errorf("process %d makes threads faster than they are moved", pid)
}

func threadsOf(pid int) (tids []int, err error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

func move(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("thread %d to CPUs %s: %w", tid, list(cpus), err)
	}
	return nil
}

// own are the CPUs that this process may use: those of its cpuset, as it has been given no others.
func own() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("the CPUs of this process: %w", err)
	}
	for cpu := range 8 * len(set) * 8 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// coreOf names a CPU's core by the CPUs that are in it; a CPU of which nothing is known is a core.
func coreOf(cpu int) string {
	siblings, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	if err != nil {
		return strconv.Itoa(cpu)
	}
	return strings.TrimSpace(string(siblings))
}
