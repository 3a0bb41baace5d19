package housekeeping

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
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
	for _, h := range hypervisors.Hypervisors(sysfs.Roots{}).All() {
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
