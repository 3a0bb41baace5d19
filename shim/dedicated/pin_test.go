package dedicated

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPin reads threads of a real process back from /proc.
func TestPin(t *testing.T) {
	cpus, err := Of(0)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "infinity")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill(); child.Wait() })
	pid, last := child.Process.Pid, cpus[len(cpus)-1:]
	if err := Pin(pid, nil, Placement{VCPUs: last, Others: cpus[:1]}); err == nil {
		t.Error("a VMM without threads of vCPUs is no fault")
	}
	// Its only thread is a vCPU's, and then one of the others.
	for _, c := range []struct {
		vcpus []int
		p     Placement
		want  []int
	}{
		{[]int{pid}, Placement{VCPUs: last, Others: cpus[:1]}, last},
		{nil, Placement{Others: cpus[:1]}, cpus[:1]},
	} {
		if err := Pin(pid, c.vcpus, c.p); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", c.want[0]); err != nil || !strings.Contains(string(status), want) {
			t.Errorf("want %q in %s (%v)", want, status, err)
		}
		if got, err := Of(pid); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Of(%d) is %v (%v), want %v", pid, got, err, c.want)
		}
	}
	if err := move(1<<30, last); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a thread that is not there: %v", err)
	}
}

// TestOn: what runs has the CPU, and nothing else of the process.
func TestOn(t *testing.T) {
	all, err := Of(0)
	if err != nil {
		t.Fatal(err)
	}
	last, failed := all[len(all)-1:], errors.New("failed")
	err = On(last, func() error {
		if got, err := Of(0); err != nil || !slices.Equal(got, last) {
			t.Errorf("it runs on %v (%v), want %v", got, err, last)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if got, err := Of(os.Getpid()); err != nil || !slices.Equal(got, all) {
		t.Errorf("afterwards the process runs on %v (%v), want %v", got, err, all)
	}
	if err := On([]int{1023}, func() error { t.Error("it runs"); return nil }); err == nil && len(all) < 1024 {
		t.Error("a CPU that is not there is no fault")
	}
}

func TestWhere(t *testing.T) {
	if got := Where(1 << 20); got != (CPU{Core: "1048576", Node: NoNode}) {
		t.Errorf("a CPU of which nothing is known is %+v", got)
	}
	if _, err := os.Stat("/sys/devices/system/node/node0/cpulist"); err == nil && Where(0).Node == NoNode {
		t.Error("CPU 0 is in no node")
	}
}
