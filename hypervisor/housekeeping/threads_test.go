package housekeeping

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// tree is a made-up /proc.
type tree struct {
	t    testing.TB
	root string
}

func newTree(t testing.TB) tree { return tree{t, t.TempDir()} }

func (f tree) file(path, text string) {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// vmm is a process whose threads are numbered from its own id.
func (f tree) vmm(pid int, nstgid string, names ...string) {
	f.file(fmt.Sprintf("%d/comm", pid), names[0]+"\n")
	f.file(fmt.Sprintf("%d/status", pid), "Name:\tx\nNStgid:\t"+nstgid+"\n")
	f.file(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S 1 1 1 0 -1 4194304 0", pid, names[0]))
	for i, name := range names {
		f.file(fmt.Sprintf("%d/task/%d/comm", pid, pid+i), name+"\n")
	}
}

// process is one alone; flags are its PF_ flags.
func (f tree) process(pid int, name string, flags int) {
	f.file(fmt.Sprintf("%d/comm", pid), name+"\n")
	f.file(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S 2 0 0 0 -1 %d 0", pid, name, flags))
}

func (f tree) roots() sysfs.Roots { return sysfs.Roots{Proc: f.root} }

const kernelFlags = 0x00208040

func kvmNames() hypervisor.ThreadNames {
	return hypervisor.ThreadNames{VCPU: `^(?:CPU (\d+)/KVM|vcpu(\d+))$`, PIT: "kvm-pit/"}
}

func describe(found *Found) string {
	var all []string
	for _, t := range found.Threads {
		one := fmt.Sprintf("%d:%v", t.TID, t.Kind)
		if t.VCPU >= 0 {
			one += fmt.Sprintf("%d", t.VCPU)
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name  string
		names hypervisor.ThreadNames
		build func(f tree)
		want  string
		notes int
	}{
		{"qemu", kvmNames(), func(f tree) {
			f.vmm(100, "100", "qemu-system-x86", "call_rcu", "IO disk0", "CPU 1/KVM", "CPU 0/KVM", "worker", "CPU 10/KVM")
			f.process(900, "kvm-pit/100", kernelFlags)
			f.process(901, "kvm-pit/1000", kernelFlags)
			f.process(902, "kvm-pit/10", kernelFlags)
		}, "100:emulator 101:emulator 102:io 103:vcpu1 104:vcpu0 105:emulator 106:vcpu10 900:pit", 0},
		{"cloud-hypervisor", kvmNames(), func(f tree) {
			f.vmm(100, "100", "cloud-hyperviso", "vmm", "vcpu0", "vcpu1", "_disk0_q0", "_net1_qp0", "_rng")
		}, "100:emulator 101:emulator 102:vcpu0 103:vcpu1 104:io 105:io 106:emulator", 0},
		{"in a pid namespace", kvmNames(), func(f tree) {
			f.vmm(4000, "4000\t17", "qemu-system-x86", "CPU 0/KVM")
			f.process(900, "kvm-pit/17", kernelFlags)
			f.process(901, "kvm-pit/4000", kernelFlags)
		}, "900:pit 4000:emulator 4001:vcpu0", 0},
		{"two with one number", kvmNames(), func(f tree) {
			f.vmm(4000, "4000\t1", "qemu-system-x86", "CPU 0/KVM")
			f.process(900, "kvm-pit/1", kernelFlags)
			f.process(901, "kvm-pit/1", kernelFlags)
		}, "4000:emulator 4001:vcpu0", 1},
		{"an impostor", kvmNames(), func(f tree) {
			f.vmm(100, "100", "qemu-system-x86", "CPU 0/KVM")
			f.process(900, "kvm-pit/100", 0x400040)
			f.file("901/comm", "kvm-pit/100\n")
			f.file("901/stat", "901 (kvm-pit/100")
		}, "100:emulator 101:vcpu0", 0},
		{"a guest's name with all sorts", kvmNames(), func(f tree) {
			f.vmm(100, "100", "CPU x/KVM", "CPU 99999999/KVM", "xCPU 0/KVM", "CPU 0/KVM\nCPU 1/KVM", "")
		}, "100:emulator 101:emulator 102:emulator 103:emulator 104:emulator", 0},
		{"a pattern for the file's text", hypervisor.ThreadNames{VCPU: `^CPU (\d+)/KVM\n$`, PIT: "kvm-pit"}, func(f tree) {
			f.vmm(100, "100", "qemu-system-x86", "CPU 3/KVM")
			f.process(900, "kvm-pit/100", kernelFlags)
		}, "100:emulator 101:vcpu3 900:pit", 0},
		{"no names", hypervisor.ThreadNames{}, func(f tree) { f.vmm(100, "100", "x", "CPU 0/KVM") }, "100:emulator 101:emulator", 0},
		{"ended while it was read", kvmNames(), func(f tree) {
			f.vmm(100, "100", "x", "CPU 0/KVM", "worker")
			if err := os.Remove(filepath.Join(f.root, "100/task/102/comm")); err != nil {
				t.Fatal(err)
			}
		}, "100:emulator 101:vcpu0", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newTree(t)
			c.build(f)
			pid := 100
			if _, err := os.Stat(filepath.Join(f.root, "100")); err != nil {
				pid = 4000
			}
			found, err := Find(f.roots(), pid, c.names)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(found); got != c.want || len(found.Notes) != c.notes {
				t.Errorf("found %s, notes %q; want %s", got, found.Notes, c.want)
			}
		})
	}
}

func TestFindFails(t *testing.T) {
	f := newTree(t)
	if _, err := Find(f.roots(), 100, kvmNames()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a process that is not there: %v", err)
	}
	f.vmm(100, "100", "x")
	for _, pattern := range []string{"(", "CPU"} {
		if _, err := Find(f.roots(), 100, hypervisor.ThreadNames{VCPU: pattern}); err == nil || !strings.Contains(err.Error(), "pattern") {
			t.Errorf("pattern %q: %v", pattern, err)
		}
	}
	// Pipes where files should be: an error or a thread without a name, and no waiting.
	pipe := filepath.Join(f.root, "100/task/100/comm")
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(f.roots(), 100, hypervisor.ThreadNames{}); err == nil && found.Threads[0].Kind != Emulator {
		t.Errorf("a pipe became %v", found.Threads)
	}
}

func TestVCPUsAreInOrder(t *testing.T) {
	f := &Found{Threads: []Thread{{TID: 1, Kind: VCPU, VCPU: 2}, {TID: 2, Kind: Emulator, VCPU: -1}, {TID: 3, Kind: VCPU, VCPU: 0}}}
	var order []int
	for _, v := range f.VCPUs() {
		order = append(order, v.VCPU)
	}
	if !slices.Equal(order, []int{0, 2}) {
		t.Errorf("virtual CPUs %v", order)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("CPU 0/KVM", "Name:\tx\nNStgid:\t1\t2\n", "1 (a) b) S 1 1 1 1 1 2097152", `^CPU (\d+)/KVM$`)
	f.Add("", "NStgid:", ")", "()")
	f.Add(strings.Repeat("x", 500), "NStgid:\t99999999999999999999", "(", `(a)|(b)`)
	f.Fuzz(func(t *testing.T, name, status, stat, pattern string) {
		if inner := innermost(status); inner < 0 {
			t.Errorf("innermost of %q is %d", status, inner)
		}
		if kernelThread(stat) && !strings.Contains(stat, ")") {
			t.Errorf("%q is a kernel thread", stat)
		}
		known, err := compile(hypervisor.ThreadNames{VCPU: pattern})
		if err != nil {
			return
		}
		thread := known.thread(1, 2, name)
		if (thread.Kind == VCPU) != (thread.VCPU >= 0) || thread.VCPU >= 1<<16 {
			t.Errorf("%q by %q is %+v", name, pattern, thread)
		}
	})
}
