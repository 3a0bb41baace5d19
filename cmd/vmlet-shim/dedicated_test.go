package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/test/hugetlb"
)

// TestDedicatedCPUs reads from /proc where a real QEMU's threads may run: a vCPU on its CPU alone, the others on
// the CPUs that are left, or on all that the shim has.
func TestDedicatedCPUs(t *testing.T) {
	for _, c := range []struct {
		vcpus    int
		isolated bool
	}{{1, true}, {2, false}} {
		t.Run(fmt.Sprintf("%d, isolated %v", c.vcpus, c.isolated), func(t *testing.T) {
			own := twoCPUs(t) // the shim inherits them
			s := newScene(t)
			s.startShim()
			p := s.plan(anyQEMU(t))
			p.Args = append(p.Args, "-name", "test,debug-threads=on", "-smp", strconv.Itoa(c.vcpus))
			p.Dedicated = &plan.Dedicated{VCPUs: 3}
			_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
			wantCode(t, err, shim.CodeInvalid, "cpu.dedicated", "3 CPUs are wanted")
			p.Dedicated = &plan.Dedicated{VCPUs: c.vcpus, IsolateEmulatorThread: c.isolated}
			launched, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
			s.check(err)
			wantThreads(t, launched.VMMPID, "CPU %d/", dedicated.Wanted{VCPUs: c.vcpus, Isolate: c.isolated}, own)
		})
	}
}

// TestDedicatedCPUsCloudHypervisor: it puts vCPUs on their CPUs itself, when it boots and when it goes on from an image.
func TestDedicatedCPUsCloudHypervisor(t *testing.T) {
	own := twoCPUs(t)
	s, program := newCloudScene(t)
	s.startShim()
	p := s.cloudPlan(program)
	p.Dedicated = &plan.Dedicated{VCPUs: 1, IsolateEmulatorThread: true}
	wanted := dedicated.Wanted{VCPUs: 1, Isolate: true}
	launched, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	s.check(err)
	wantThreads(t, launched.VMMPID, "vcpu%d", wanted, own)
	dir := filepath.Join(s.root, "image")
	s.cloudSave(dir, false)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	s.startShim()
	launched, err = s.client.Launch(s.ctx, shim.Launch{Plan: s.cloudRestore(p, dir, false)}, nil, nil)
	s.check(err)
	wantThreads(t, launched.VMMPID, "vcpu%d", wanted, own)
}

// TestNear: RAM that is allocated next to its vCPUs, before QEMU starts, is filled at a restore.
func TestNear(t *testing.T) {
	own := twoCPUs(t)
	s := newScene(t)
	s.ram = filepath.Join(hugetlb.Mount(t, ramSize/hugetlb.Page), "ram")
	s.startShim()
	q := anyQEMU(t)
	near := func(p *plan.Plan) *plan.Plan {
		p.Args = append(p.Args, "-smp", "2")
		p.Dedicated = &plan.Dedicated{VCPUs: len(own)}
		p.Memory.PageSize = hugetlb.Page
		p.Memory.Near = []plan.Near{{Size: ramSize / 4, VCPUs: []int{0}}, {Offset: ramSize / 4, Size: 3 * ramSize / 4, VCPUs: []int{1}}}
		return p
	}
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: near(s.plan(q))}, nil, nil)
	s.check(err)
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.root, "image")
	_, err = s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	s.again(near(s.restorePlan(q, dir, false)))
	s.console(0).verify()
}

// wantThreads compares where a VMM's threads may run with where they are to; vcpu is the name of those of vCPUs.
func wantThreads(t *testing.T, pid int, vcpu string, wanted dedicated.Wanted, own []int) {
	t.Helper()
	want, err := dedicated.Place(wanted, own, dedicated.Where)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for name, allowed := range threadsCPUs(t, pid) {
		var number int
		cpus := want.Others
		if n, _ := fmt.Sscanf(name, vcpu, &number); n == 1 {
			cpus = want.VCPUs[number : number+1]
			found++
		}
		if fmt.Sprint(allowed) != fmt.Sprint(cpus) {
			t.Errorf("thread %s may run on CPUs %v, want %v", name, allowed, cpus)
		}
	}
	if found != wanted.VCPUs {
		t.Errorf("%d threads are vCPUs', want %d", found, wanted.VCPUs)
	}
}

// twoCPUs leaves this test's thread two CPUs.
func twoCPUs(t *testing.T) []int {
	t.Helper()
	all, err := dedicated.Of(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Skip("it needs two CPUs")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	var set unix.CPUSet
	set.Set(all[0])
	set.Set(all[1])
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	return all[:2]
}

// threadsCPUs are the CPUs that the threads of a process may run on, by the threads' names.
func threadsCPUs(t *testing.T, pid int) map[string][]int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("threads of process %d: %v (%v)", pid, tasks, err)
	}
	threads := make(map[string][]int)
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			t.Fatal(err)
		}
		name, errName := os.ReadFile(filepath.Join(task, "comm"))
		cpus, errCPUs := dedicated.Of(tid)
		if errName == nil && errCPUs == nil { // else it has ended
			threads[strings.TrimSpace(string(name))] = cpus
		}
	}
	return threads
}
