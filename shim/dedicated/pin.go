package dedicated

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pin gives each thread of vcpus, which are thread ids of the process in the order of the vCPUs, its CPU,
// and the process' other threads theirs; threads that are made later have what their makers have. After an
// error threads may have been moved.
func Pin(pid int, vcpus []int, p Placement) error {
	if len(vcpus) != len(p.VCPUs) {
		return fmt.Errorf("the VMM has %d threads for %d vCPUs", len(vcpus), len(p.VCPUs))
	}
	for i, tid := range vcpus {
		if err := move(tid, p.VCPUs[i:i+1]); err != nil {
			return fmt.Errorf("vCPU %d: %w", i, err)
		}
	}
	return others(pid, vcpus, p.Others)
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
			err := move(tid, cpus)
			if err != nil && !errors.Is(err, unix.ESRCH) && !isIOWorker(pid, tid) { // it may have ended
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

// isIOWorker: it is one of the kernel's for io_uring, which some kernels (5.12 to 6.2) let nobody move.
func isIOWorker(pid, tid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	return err == nil && strings.HasPrefix(string(name), "iou-")
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

// On runs f on a thread that runs on these CPUs alone meanwhile.
func On(cpus []int, f func() error) error {
	runtime.LockOSThread()
	before, err := Of(0)
	if err == nil {
		err = move(0, cpus)
	}
	if err == nil {
		err = f()
	}
	if back := move(0, before); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// Of are the CPUs that a process, 0 for this one, may use: those of its cpuset, unless it was given fewer.
func Of(pid int) (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	for cpu := range 8 * len(set) * 8 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Where reads a CPU's core and node from sysfs. An unknown CPU is a core by itself.
func Where(cpu int) CPU {
	folder := fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu)
	at := CPU{Core: strconv.Itoa(cpu), Node: NoNode}
	if siblings, err := os.ReadFile(filepath.Join(folder, "topology/thread_siblings_list")); err == nil {
		at.Core = strings.TrimSpace(string(siblings))
	}
	links, _ := filepath.Glob(filepath.Join(folder, "node[0-9]*")) // the pattern is well-formed
	for _, link := range links {
		if node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "node")); err == nil {
			at.Node = node
		}
	}
	return at
}
