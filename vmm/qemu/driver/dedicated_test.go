package driver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/shim/server"
)

// TestDedicatedCPUs reads from /proc where QEMU's threads may run: a vCPU on its own CPU, all others,
// also those that QEMU makes later, on the other.
func TestDedicatedCPUs(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its CPUs with it
	var all, two unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; two.Count() < 2; cpu++ {
		if cpu == 1024 {
			t.Skip("it needs two CPUs")
		}
		if all.IsSet(cpu) {
			two.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &two); err != nil {
		t.Fatal(err)
	}
	forEachQEMU(t, func(t *testing.T, binary string) {
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, &two); err != nil {
			t.Fatal(err)
		}
		m, cmd := start(t, binary, "-S", "-name", "a,debug-threads=on")
		threads, err := m.(server.VCPUThreader).VCPUThreads(patience(t))
		if err != nil || len(threads) != 1 {
			t.Fatalf("threads of vCPUs: %v (%v)", threads, err)
		}
		placed, err := dedicated.Pin(cmd.Process.Pid, threads, dedicated.Wanted{VCPUs: 1, Isolate: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Continue(patience(t)); err != nil {
			t.Fatal(err)
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", cmd.Process.Pid))
		if err != nil || len(tasks) < 2 {
			t.Fatalf("QEMU's threads: %v (%v)", tasks, err)
		}
		for _, task := range tasks {
			status, err := os.ReadFile(filepath.Join(task, "status"))
			if err != nil {
				continue // it has ended
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(string(status), "Name:\t"), "\n")
			want := placed.Others[0]
			if strings.HasPrefix(name, "CPU 0") {
				want = placed.VCPUs[0]
			}
			if !strings.Contains(string(status), "Cpus_allowed_list:\t"+strconv.Itoa(want)+"\n") {
				t.Errorf("thread %s may not run on CPU %d alone: %s", name, want, status)
			}
		}
	})
}
