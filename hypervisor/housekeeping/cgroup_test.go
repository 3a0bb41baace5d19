package housekeeping

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/sysfs"
)

// TestApplyCgroupReal moves threads in the cgroups that this machine has: v1's cpuset, and v2.
func TestApplyCgroupReal(t *testing.T) {
	for _, mount := range []string{"/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		t.Run(strings.ReplaceAll(mount[1:], "/", "-"), func(t *testing.T) {
			pid := startQEMU(t, "tcg", 1)
			dir := makeVMCgroup(t, mount, pid)
			found, err := Find(sysfs.Roots{}, pid, hypervisor.ThreadNames{VCPU: `^CPU (\d+)/TCG$`})
			if err != nil {
				t.Fatal(err)
			}
			actions, err := Plan(found, Request{CPUs: twoCPUs(t), VCPUs: 1, IsolateEmulator: true})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := (System{Cgroup: dir}).Apply(actions); err != nil {
					t.Fatal(err)
				}
			}
			for _, thread := range found.Threads {
				text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(thread.TID), "cgroup"))
				if gone(err) {
					continue
				}
				if isolated := strings.Contains(string(text), filepath.Base(dir)+"/"+CgroupName); isolated != (thread.Kind != VCPU) {
					t.Errorf("%s (%v): in housekeeping: %v", thread.Name, thread.Kind, isolated)
				}
			}
		})
	}
}

// makeVMCgroup makes one as an agent does and moves the process there; both go with the test.
func makeVMCgroup(t *testing.T, mount string, pid int) string {
	t.Helper()
	if !exists(filepath.Join(mount, "cgroup.procs")) {
		t.Skipf("no cgroups at %s", mount)
	}
	dir := filepath.Join(mount, "vmlet-test-"+strconv.Itoa(pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { removeCgroups(t, pid, filepath.Join(dir, CgroupName), dir) })
	if mount == "/sys/fs/cgroup/cpuset" {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := os.ReadFile(filepath.Join(mount, file))
			if err != nil {
				t.Fatal(err)
			}
			if err := write(dir, file, strings.TrimSpace(string(text))); err != nil {
				t.Skip(err)
			}
		}
	}
	if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		t.Skip(err)
	}
	return dir
}

// removeCgroups ends the process: nothing else empties them.
func removeCgroups(t *testing.T, pid int, dirs ...string) {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
	for _, dir := range dirs {
		err := os.Remove(dir)
		for n := 0; errors.Is(err, unix.EBUSY) && n < 100; n++ {
			time.Sleep(50 * time.Millisecond)
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestApplyGoesOn: what fails is named, what can be done is.
func TestApplyGoesOn(t *testing.T) {
	pid := startQEMU(t, "tcg", 1)
	cpu := twoCPUs(t)[0]
	main := Thread{PID: pid, TID: pid, Name: "main"}
	done, err := System{Cgroup: filepath.Join(t.TempDir(), "missing")}.Apply([]Action{
		{Thread: main, CPUs: sysfs.IDList{sysfs.MaxID - 1}},
		{Thread: main, Cgroup: CgroupName},
		{Thread: main, CPUs: sysfs.IDList{cpu}},
		{Thread: Thread{PID: pid, TID: pid, Name: "nothing to do"}},
	})
	if done.Done != 2 || err == nil {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, s := range []string{"(main)", "sched_setaffinity to CPUs 65535", "none of them is online", "the cgroup for housekeeping"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q doesn't say %q", err, s)
		}
	}
	if got := allowedList(t, pid, pid); got != strconv.Itoa(cpu) {
		t.Errorf("the main thread runs on %s", got)
	}
}
