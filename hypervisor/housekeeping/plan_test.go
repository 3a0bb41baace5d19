package housekeeping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs"
)

func foundThreads() *Found {
	return &Found{Threads: []Thread{
		{TID: 9, Name: "kvm-pit/10", Kind: PIT, VCPU: -1},
		{TID: 10, Name: "qemu-system-x86", VCPU: -1},
		{TID: 11, Name: "CPU 1/KVM", Kind: VCPU, VCPU: 1},
		{TID: 12, Name: "CPU 0/KVM", Kind: VCPU, VCPU: 0},
		{TID: 13, Name: "IO disk0", Kind: IO, VCPU: -1},
	}}
}

func lines(actions []Action) string {
	var b strings.Builder
	for _, a := range actions {
		fmt.Fprintf(&b, "%d on %s", a.Thread.TID, a.CPUs)
		if a.Policy == PolicyFIFO {
			fmt.Fprintf(&b, " fifo %d", a.Priority)
		}
		if a.Cgroup != "" {
			b.WriteString(" in " + a.Cgroup)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want string
	}{
		{"dedicated", Request{CPUs: []int{4, 12}, VCPUs: 2}, "9 on 4; 10 on 4,12; 11 on 12; 12 on 4; 13 on 4,12"},
		{"isolated", Request{CPUs: []int{4, 12, 5}, VCPUs: 2, IsolateEmulator: true},
			"9 on 4; 10 on 5 in housekeeping; 11 on 12; 12 on 4; 13 on 5 in housekeeping"},
		{"isolated with much room", Request{CPUs: []int{4, 12, 13, 5}, VCPUs: 2, IsolateEmulator: true},
			"9 on 4; 10 on 5,13 in housekeeping; 11 on 12; 12 on 4; 13 on 5,13 in housekeeping"},
		{"realtime", Request{CPUs: []int{4, 12, 5}, VCPUs: 2, IsolateEmulator: true, Realtime: true},
			"9 on 4; 10 on 5 in housekeeping; 11 on 12 fifo 1; 12 on 4 fifo 1; 13 on 5 in housekeeping"},
	} {
		actions, err := Plan(foundThreads(), c.r)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := lines(actions); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	twice := foundThreads()
	twice.Threads[2].VCPU = 0
	for _, c := range []struct {
		name  string
		found *Found
		r     Request
		says  string
	}{
		{"too few", foundThreads(), Request{CPUs: []int{1}, VCPUs: 2}, "at least 2"},
		{"too few to isolate", foundThreads(), Request{CPUs: []int{1, 2}, VCPUs: 2, IsolateEmulator: true}, "isolated emulator threads: want at least 3"},
		{"none", foundThreads(), Request{}, "at least 1"},
		{"one twice", foundThreads(), Request{CPUs: []int{1, 1}, VCPUs: 2}, "CPU 1 is dedicated twice"},
		{"not up", foundThreads(), Request{CPUs: []int{1, 2, 3}, VCPUs: 3}, "2 of 3"},
		{"too many", foundThreads(), Request{CPUs: []int{1}, VCPUs: 1}, "CPU 1/KVM"},
		{"same number", twice, Request{CPUs: []int{1, 2}, VCPUs: 2}, "two threads"},
		{"no names", &Found{Threads: []Thread{{TID: 1, VCPU: -1}}}, Request{CPUs: []int{1}, VCPUs: 1}, "debug-threads=on"},
	} {
		if actions, err := Plan(c.found, c.r); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: planned %s, error %v, want one with %q", c.name, lines(actions), err, c.says)
		}
	}
}

// The rest's list is one for all: applying must not see it change.
func TestPlanIsPure(t *testing.T) {
	cpus := []int{12, 4}
	if _, err := Plan(foundThreads(), Request{CPUs: cpus, VCPUs: 2}); err != nil {
		t.Fatal(err)
	}
	if cpus[0] != 12 || (sysfs.IDList{4, 12}).String() != "4,12" {
		t.Errorf("planning sorted the request: %v", cpus)
	}
}
