package metrics_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/metrics"
	"github.com/vmlet/vmlet/sysfs"
)

// benchVMM has this test's program be a process with a VMM's threads.
const benchVMM = "VMLET_TEST_BE_A_VMM"

func TestMain(m *testing.M) {
	if os.Getenv(benchVMM) != "" {
		beVMM()
		return
	}
	os.Exit(m.Run())
}

// beVMM has threads called as QEMU's are, and ends with its parent.
func beVMM() {
	runtime.LockOSThread()
	ready := make(chan error)
	for _, name := range []string{"CPU 0/KVM", "CPU 1/KVM", "CPU 2/KVM", "CPU 3/KVM", "IO mon_iothread", "worker", "worker"} {
		go func() {
			runtime.LockOSThread()
			ready <- os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", unix.Gettid()), []byte(name), 0)
			select {}
		}()
		if err := <-ready; err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// BenchmarkScrape100VMs scrapes 100 VMs of four virtual CPUs, two disks and all
// that a guest can say, whose processes, and cgroups where they can be made, are
// real ones of this machine.
func BenchmarkScrape100VMs(b *testing.B) {
	const count = 100
	var vms []metrics.VM
	for i := range count {
		vm := web()
		vm.Record.Id, vm.Name = fmt.Sprint("id-", i), fmt.Sprint("web-", i)
		vm.Record.Status.EffectiveSpec.Cpu.Cores = 4
		vm.Record.Status.EffectiveSpec.Networks = nil
		vm.Sampler = &sampler{answer: webSample()}
		vms = append(vms, vm)
	}
	cgroups, err := host.NewCgroups(fmt.Sprintf("/vmlet-bench-%d", os.Getpid()), "", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Logf("VMs without cgroups: %v", err)
	} else {
		b.Cleanup(cgroups.Close)
	}
	var ends []func()
	for i := range vms {
		pid, end := startVMM(b)
		ends = append(ends, end)
		p := vms[i].Record.Status.Process
		p.VmmPid, p.ShimPid, p.Cgroup = int64(pid), int64(os.Getpid()), ""
		if cgroups != nil {
			p.Cgroup = joinCgroup(b, cgroups, fmt.Sprint("vm-", i), pid)
		}
	}
	// Before the cgroups are removed.
	b.Cleanup(func() {
		for _, end := range ends {
			end()
		}
	})
	s := sources(machine(b, true), vms...)
	s.Roots = sysfs.Roots{}
	m := start(b, s)
	settled(b, m, count)
	size := 0
	b.ReportAllocs()
	begun := time.Now()
	for b.Loop() {
		size = len(scrape(b, m))
	}
	b.ReportMetric(float64(time.Since(begun).Microseconds())/1000/float64(b.N), "ms/scrape")
	b.ReportMetric(float64(size)/1024, "KiB/scrape")
}

func startVMM(b *testing.B) (pid int, end func()) {
	b.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), benchVMM+"=1", "GOMAXPROCS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		b.Fatalf("a process with a VMM's threads says %q, %v", line, err)
	}
	return cmd.Process.Pid, func() {
		in.Close()
		_ = cmd.Wait()
	}
}

// joinCgroup moves a process into a cgroup of its own, and returns its path.
func joinCgroup(b *testing.B, all host.Cgroups, name string, pid int) string {
	c := all.Plan(name)
	if err := all.Make(c); err != nil {
		b.Logf("a VM without a cgroup: %v", err)
		return ""
	}
	b.Cleanup(func() { _ = all.Remove(c) })
	if err := all.Add(c, pid); err != nil {
		b.Logf("a VM without a cgroup: %v", err)
		return ""
	}
	return c.Path()
}
