package dedicated

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPlace: threads of a core stay together, and there are neither too few nor too many CPUs.
func TestPlace(t *testing.T) {
	// Of 8 CPUs, n and n+4 are a core's.
	core := func(cpu int) string { return fmt.Sprint(cpu % 4) }
	for name, c := range map[string]struct {
		wanted        Wanted
		cpus          []int
		vcpus, others []int // none: an error
	}{
		"one":                     {Wanted{VCPUs: 1}, []int{3}, []int{3}, []int{3}},
		"siblings":                {Wanted{VCPUs: 4}, []int{1, 2, 5, 6}, []int{1, 5, 2, 6}, []int{1, 5, 2, 6}},
		"in another order":        {Wanted{VCPUs: 4}, []int{6, 5, 2, 1}, []int{1, 5, 2, 6}, []int{1, 5, 2, 6}},
		"a core and a CPU":        {Wanted{VCPUs: 2, Isolate: true}, []int{0, 1, 5}, []int{1, 5}, []int{0}},
		"a core in the middle":    {Wanted{VCPUs: 4}, []int{1, 2, 6, 3}, []int{2, 6, 1, 3}, []int{2, 6, 1, 3}},
		"isolated":                {Wanted{VCPUs: 2, Isolate: true}, []int{0, 4, 1}, []int{0, 4}, []int{1}},
		"too few":                 {Wanted{VCPUs: 2}, []int{0}, nil, nil},
		"too many: not dedicated": {Wanted{VCPUs: 2}, []int{0, 1, 2}, nil, nil},
		"none for the VMM":        {Wanted{VCPUs: 2, Isolate: true}, []int{0, 1}, nil, nil},
	} {
		p, err := Place(c.wanted, c.cpus, core)
		if (err == nil) != (c.vcpus != nil) {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && !reflect.DeepEqual(p, Placement{c.vcpus, c.others}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestPin reads threads of a real process back from /proc.
func TestPin(t *testing.T) {
	cpus, err := own()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "infinity")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill(); child.Wait() })
	pid := child.Process.Pid
	if _, err := Pin(pid, []int{pid}, Wanted{VCPUs: 1}); (err == nil) != (len(cpus) == 1) {
		t.Errorf("one vCPU on %d CPUs: %v", len(cpus), err)
	}
	if _, err := Pin(pid, nil, Wanted{VCPUs: 1}); err == nil {
		t.Error("a VMM without threads of vCPUs is no fault")
	}
	last := cpus[len(cpus)-1:]
	if err := errors.Join(move(pid, last), others(pid, nil, last)); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", last[0]); err != nil || !strings.Contains(string(status), want) {
		t.Errorf("want %q in %s (%v)", want, status, err)
	}
	if err := move(1<<30, last); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a thread that is not there: %v", err)
	}
	if !slices.Contains(cpus, last[0]) || coreOf(1<<20) != "1048576" {
		t.Errorf("a CPU of which nothing is known is of core %s", coreOf(1<<20))
	}
}
