package housekeeping

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/sysfs"
)

// Applied counts what came of a list of actions.
type Applied struct {
	Done int
	// Gone are threads that had ended by then, which is no error.
	Gone int
}

// System is what Apply changes. The zero System is this machine without cgroups.
type System struct {
	// Cgroup is the folder of the VM's cgroup in which children are made: of cgroup v2, or of v1's cpuset; empty: threads stay where
	// they are.
	Cgroup string
}

// Apply does what a plan says, thread by thread, and goes on after a failure: the error has all of them. Applying a plan again
// changes nothing.
//
// A realtime policy wants CAP_SYS_NICE, or a RLIMIT_RTPRIO of at least 1.
func (s System) Apply(actions []Action) (Applied, error) {
	var done Applied
	var errs []error
	made := make(map[string]error)
	for _, a := range actions {
		err := s.apply(a, made)
		switch {
		case errors.Is(err, unix.ESRCH):
			done.Gone++
		case err != nil:
			errs = append(errs, fmt.Errorf("thread %d (%s): %w", a.Thread.TID, a.Thread.Name, err))
		default:
			done.Done++
		}
	}
	return done, errors.Join(errs...)
}

func (s System) apply(a Action, made map[string]error) error {
	// The kernel gives ids again: what is not the VMM's is not touched.
	if err := unix.Tgkill(a.Thread.PID, a.Thread.TID, 0); err != nil {
		return fmt.Errorf("looking for it: %w", err)
	}
	// The cgroup before the processors: moving into a cpuset gives a thread that cpuset's.
	if a.Cgroup != "" && s.Cgroup != "" {
		err, known := made[a.Cgroup]
		if !known {
			err = s.makeCgroup(a.Cgroup, a.CPUs)
			made[a.Cgroup] = err
		}
		if err != nil {
			return err
		}
		if err := s.move(a); err != nil {
			return err
		}
	}
	if len(a.CPUs) > 0 {
		if err := setAffinity(a.Thread.TID, a.CPUs); err != nil {
			return err
		}
	}
	if a.Policy == PolicyFIFO {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(a.Priority)}
		if err := unix.SchedSetAttr(a.Thread.TID, &attr, 0); err != nil {
			return explain("sched_setattr SCHED_FIFO", err, "the agent needs CAP_SYS_NICE, and the cgroup a realtime budget (cpu.rt_runtime_us)")
		}
	}
	return nil
}

func setAffinity(tid int, cpus sysfs.IDList) error {
	set := unix.NewCPUSet(cpus[len(cpus)-1] + 1)
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	err := unix.SchedSetaffinityDynamic(tid, set)
	return explain("sched_setaffinity to CPUs "+cpus.String(), err, "none of them is online and in the thread's cpuset")
}

// makeCgroup makes the child, which in cgroup v2 has to be a threaded one.
func (s System) makeCgroup(name string, cpus sysfs.IDList) error {
	dir := filepath.Join(s.Cgroup, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("the cgroup for housekeeping: %w", err)
	}
	if exists(filepath.Join(dir, "cgroup.type")) {
		if err := write(dir, "cgroup.type", "threaded"); err != nil {
			return err
		}
	}
	if !exists(filepath.Join(dir, "cpuset.cpus")) {
		return nil // no cpuset here: the affinity alone holds
	}
	if !exists(filepath.Join(dir, "cgroup.type")) { // v1: a cpuset without memory nodes takes no thread
		mems, err := os.ReadFile(filepath.Join(s.Cgroup, "cpuset.mems"))
		if err != nil {
			return err
		}
		if err := write(dir, "cpuset.mems", strings.TrimSpace(string(mems))); err != nil {
			return err
		}
	}
	return write(dir, "cpuset.cpus", cpus.String())
}

// move puts one thread into the child. Kernel threads can't be moved, and none is planned to be.
func (s System) move(a Action) error {
	dir := filepath.Join(s.Cgroup, a.Cgroup)
	file := "cgroup.threads"
	if !exists(filepath.Join(dir, file)) {
		file = "tasks" // v1
	}
	return write(dir, file, strconv.Itoa(a.Thread.TID))
}

func write(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// explain names the call, and what to do where the kernel forbids it.
func explain(call string, err error, remedy string) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s: %w: %s", call, err, remedy)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}
