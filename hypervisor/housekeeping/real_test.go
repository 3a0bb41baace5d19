package housekeeping

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/sysfs"
)

// startQEMU starts one with this accelerator that runs no guest, and returns when its threads are there.
func startQEMU(t *testing.T, accelerator string, vcpus int) int {
	t.Helper()
	binary, err := exec.LookPath("qemu-system-x86_64")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("no qemu-system-x86_64: run test/setup test")
	}
	socket := filepath.Join(t.TempDir(), "qmp")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(binary, "-nodefaults", "-no-user-config", "-display", "none", "-S", "-machine", "q35", "-m", "64",
		"-accel", accelerator, "-smp", strconv.Itoa(vcpus), "-name", "guest=test,debug-threads=on",
		"-chardev", "socket,id=m,path="+socket, "-mon", "chardev=m,mode=control")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended); l.Close() }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	conn, err := l.Accept()
	if err != nil {
		t.Skipf("QEMU with %s ended at once", accelerator)
	}
	t.Cleanup(func() { conn.Close() })
	// Its greeting comes early; the answer to a command once the machine is made, threads and all.
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"qmp_capabilities", "query-cpus-fast"} {
		if _, err := conn.Write([]byte(`{"execute":"` + command + `"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return cmd.Process.Pid
}

// onReal runs f with a QEMU under each hypervisor that this machine has.
func onReal(t *testing.T, vcpus int, f func(t *testing.T, pid int, names hypervisor.ThreadNames)) {
	for _, h := range standard.Registry(sysfs.Roots{}).All() {
		t.Run(h.Name(), func(t *testing.T) {
			if s := h.Check(t.Context()); s.Level == hypervisor.Unusable {
				t.Skip(s.Sentence())
			}
			namer, _ := hypervisor.As[hypervisor.ThreadNamer](h)
			f(t, startQEMU(t, h.Accelerator(), vcpus), namer.Threads())
		})
	}
}

func TestFindReal(t *testing.T) {
	onReal(t, 3, func(t *testing.T, pid int, names hypervisor.ThreadNames) {
		found, err := Find(sysfs.Roots{}, pid, names)
		if err != nil {
			t.Fatal(err)
		}
		vcpus := found.VCPUs()
		if len(vcpus) != 3 {
			t.Fatalf("virtual CPUs %+v among %+v, want 3", vcpus, found.Threads)
		}
		for i, v := range vcpus {
			if v.VCPU != i || v.PID != pid {
				t.Errorf("virtual CPU %d is %+v", i, v)
			}
		}
		if len(found.Threads) < 5 || found.Threads[0].TID > pid {
			t.Errorf("threads %+v: the main one and a worker are missing", found.Threads)
		}
	})
}

func TestApplyReal(t *testing.T) {
	cpus := twoCPUs(t)
	onReal(t, 1, func(t *testing.T, pid int, names hypervisor.ThreadNames) {
		found, err := Find(sysfs.Roots{}, pid, names)
		if err != nil {
			t.Fatal(err)
		}
		actions, err := Plan(found, Request{CPUs: cpus, VCPUs: 1, IsolateEmulator: true})
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, Action{Thread: Thread{PID: pid, TID: 1, Name: "not the VMM's"}, CPUs: sysfs.IDList{cpus[0]}})
		for range 2 { // again changes nothing
			done, err := System{}.Apply(actions)
			if err != nil || done.Gone < 1 || done.Done < 2 {
				t.Fatalf("%+v, %v: the thread of another process is to be left alone, all others moved", done, err)
			}
		}
		for _, a := range actions[:len(actions)-1] {
			if got := allowedList(t, a.Thread.PID, a.Thread.TID); got != "" && got != a.CPUs.String() {
				t.Errorf("%s runs on %s, want %s", a.Thread.Name, got, a.CPUs)
			}
		}
	})
}

// twoCPUs are processors that this process may use, the higher one first: a virtual CPU is then not where all else is anyway.
func twoCPUs(t *testing.T) []int {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || allowed.Count() < 2 {
		t.Skip("a virtual CPU and the rest want a CPU each")
	}
	var cpus []int
	for id := 0; len(cpus) < 2; id++ {
		if allowed.IsSet(id) {
			cpus = append([]int{id}, cpus...)
		}
	}
	return cpus
}

// allowedList is where the kernel lets a thread run; empty: it has ended.
func allowedList(t *testing.T, pid, tid int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(tid), "status"))
	if gone(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func TestApplyRealtime(t *testing.T) {
	onReal(t, 1, func(t *testing.T, pid int, names hypervisor.ThreadNames) {
		found, err := Find(sysfs.Roots{}, pid, names)
		if err != nil {
			t.Fatal(err)
		}
		vcpu := found.VCPUs()[0]
		_, err = System{}.Apply([]Action{{Thread: vcpu, Policy: PolicyFIFO, Priority: 1}})
		if err != nil {
			if !strings.Contains(err.Error(), "CAP_SYS_NICE") {
				t.Errorf("%q doesn't say what it needs", err)
			}
			t.Skip(err)
		}
		attr, err := unix.SchedGetAttr(vcpu.TID, 0)
		if err != nil || attr.Policy != unix.SCHED_FIFO || attr.Priority != 1 {
			t.Errorf("scheduled %+v, %v", attr, err)
		}
	})
}
