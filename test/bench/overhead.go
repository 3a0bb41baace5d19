package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/test/guest"
)

// shape is a VM whose cost beside its RAM is measured.
type shape struct {
	hypervisor string
	qemu       string // "": the installed one
	vcpus      int
	memory     int // MiB
	touched    int // MiB that the guest fills
	disks      int
	nics       int
	plain      bool // no console, guest agent, entropy and balloon
}

// shapes vary one thing at a time, so that each can be fitted by itself.
func shapes(qemu10 string) []shape {
	var all []shape
	for _, q := range []string{"", qemu10} {
		if q == "" && len(all) > 0 {
			continue
		}
		for _, h := range []struct {
			name  string
			large shape
		}{
			{"kvm", shape{memory: 2048, touched: 1900}},
			{"emulation", shape{memory: 8192, touched: 7600}},
		} {
			add := func(s shape) {
				s.hypervisor, s.qemu = h.name, q
				all = append(all, s)
			}
			add(shape{vcpus: 1, memory: 256, touched: 64, plain: true})
			add(shape{vcpus: 1, memory: 256, touched: 64})
			add(shape{vcpus: 1, memory: 1024, touched: 768})
			add(shape{vcpus: 1, memory: h.large.memory, touched: h.large.touched})
			add(shape{vcpus: 4, memory: 1024, touched: 512})
			add(shape{vcpus: 16, memory: 1024, touched: 512})
			add(shape{vcpus: 1, memory: 512, touched: 128, disks: 8})
			add(shape{vcpus: 1, memory: 512, touched: 128, nics: 8})
			add(shape{vcpus: 4, memory: 1024, touched: 512, disks: 4, nics: 4})
		}
	}
	return all
}

// overhead prints what VMs cost beside their RAM, as vmlet runs them.
func (b *bench) overhead() error {
	qemu10, err := guest.QEMU10()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	fmt.Println("| hypervisor | QEMU | vCPUs | RAM MiB | touched MiB | disks | NICs | standard devices | shim KiB | VMM KiB | kernel KiB | sum KiB | peak of a save KiB |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, s := range shapes(qemu10) {
		row, err := b.overheadOf(s)
		for again := 0; errors.Is(err, errCrashed) && again < 2; again++ {
			// QEMU 10.0's TCG with several threads aborts now and then while the guest maps its devices (iotlb_to_section).
			fmt.Fprintln(os.Stderr, "bench: once more:", err)
			row, err = b.overheadOf(s)
		}
		if err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
		fmt.Println(row)
	}
	return nil
}

func (b *bench) overheadOf(s shape) (string, error) {
	one := *b
	if err := one.overheadMachine(s); err != nil {
		return "", err
	}
	made, err := one.vmlet(s.qemu)()
	if err != nil {
		return "", err
	}
	v := made.(*vmlet)
	defer closeAll([]system{v})
	if err := v.boot(b.ctx); err != nil {
		return "", err
	}
	if err := v.untilTouched(b.ctx, s); err != nil {
		return "", err
	}
	time.Sleep(2 * time.Second) // what a boot leaves behind is done with
	at, err := v.cost(b.ctx)
	if err != nil {
		return "", err
	}
	peak := "–"
	if s.touched <= 1024 {
		if err := v.vmlet(b.ctx, "save", "bench", v.path("image"), "--keep-running"); err != nil {
			return "", err
		}
		after, err := v.cost(b.ctx)
		if err != nil {
			return "", err
		}
		peak = strconv.Itoa(after.peak)
	}
	yes := map[bool]string{false: "yes", true: "no"}[s.plain]
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %s | %d | %d | %d | %d | %s |", s.hypervisor, at.version, s.vcpus, s.memory,
		s.touched, s.disks, s.nics, yes, at.shim, at.vmm, at.kernel, at.shim+at.vmm+at.kernel, peak), nil
}

// overheadMachine makes the guest: under KVM the tiny one, as this has to run
// where KVM emulates each instruction; under emulation a Linux, for the code that
// is translated.
func (b *bench) overheadMachine(s shape) error {
	b.machine.memory = uint64(s.memory) << 20
	extra := map[string]any{"hypervisor": s.hypervisor, "cpu": map[string]any{"cores": s.vcpus}}
	if s.plain {
		// The tiny guest and the Linux one both speak on the console.
		extra["devices"] = map[string]any{"guestAgent": false, "entropy": false, "balloon": false}
	}
	if s.hypervisor == "kvm" {
		pvh, err := guest.PVH(guest.PVHOptions{Memory: guest.Pattern{Address: guest.PatternMin, MiB: uint32(s.touched), Seed: 1, Words: 1}})
		if err != nil {
			return err
		}
		b.machine.kernel, b.machine.initrd, b.machine.cmdline = filepath.Join(b.work, "touch.elf"), "", ""
		if err := os.WriteFile(b.machine.kernel, pvh, 0o644); err != nil {
			return err
		}
	}
	var disks, nics []any
	for i := range s.disks {
		path := filepath.Join(b.work, fmt.Sprintf("disk%d.img", i))
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
		if err := os.Truncate(path, 64<<20); err != nil {
			return err
		}
		disks = append(disks, map[string]any{"path": path})
	}
	for range s.nics {
		nics = append(nics, map[string]any{"user": map[string]any{}})
	}
	maps.Copy(extra, map[string]any{"disks": disks, "networks": nics})
	b.machine.extra = extra
	return nil
}

// untilTouched waits until the guest has filled its memory.
func (v *vmlet) untilTouched(ctx context.Context, s shape) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	filled := fmt.Sprintf("filled %d MiB", s.touched)
	if s.hypervisor == "kvm" {
		return v.untilConsole(ctx, guest.FilledPrefix)
	}
	if err := v.untilConsole(ctx, "count 20 "); err != nil {
		return err
	}
	attached, detach := context.WithCancel(ctx) // its input's end does not end it
	defer detach()
	console := exec.CommandContext(attached, "bin/vmlet", "--socket", v.path("run/vmlet.sock"), "console", "bench")
	in, err := console.StdinPipe()
	if err != nil {
		return err
	}
	if err := console.Start(); err != nil {
		return err
	}
	defer func() {
		detach()
		_ = console.Wait() // killed: its status says so
	}()
	if _, err := fmt.Fprintf(in, "mem %d 1\n", s.touched); err != nil {
		return err
	}
	return v.untilConsole(ctx, filled)
}

// errCrashed: the VMM ended while the guest was waited for.
var errCrashed = errors.New("the VMM has crashed")

func (v *vmlet) untilConsole(ctx context.Context, want string) error {
	for {
		text, _ := os.ReadFile(v.console()) // it may not be there yet
		if strings.Contains(string(text), want) {
			return nil
		}
		if how, err := os.ReadFile(v.path("state/vms/bench/exit.json")); err == nil {
			return fmt.Errorf("%w: %s", errCrashed, how)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%q did not come on the console %s: %w", want, v.console(), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// cost is a VM's memory beside its RAM, in KiB.
type cost struct {
	version           string
	shim, vmm, kernel int
	peak              int // the highest of all three since it began
}

// cost reads what the VM's processes have resident without the guest's RAM, all
// their shared pages counted (a pod's image is its own), and what the kernel has
// allocated for its cgroup: page tables, the RAM file's index, stacks, KVM.
func (v *vmlet) cost(ctx context.Context) (cost, error) {
	var vm struct {
		Status struct {
			Process struct {
				ShimPid int `json:"shimPid,string"`
				VmmPid  int `json:"vmmPid,string"`
			} `json:"process"`
			Vmm struct{ Version string } `json:"vmm"`
		} `json:"status"`
	}
	out, err := exec.CommandContext(ctx, "bin/vmlet", "--socket", v.path("run/vmlet.sock"), "get", "bench", "-o", "json").Output()
	if err != nil {
		return cost{}, err
	}
	if err := json.Unmarshal(out, &vm); err != nil {
		return cost{}, err
	}
	p := vm.Status.Process
	c := cost{version: vm.Status.Vmm.Version}
	if c.shim, err = residentBeside(p.ShimPid, v.path("run")); err != nil {
		return c, err
	}
	if c.vmm, err = residentBeside(p.VmmPid, v.path("run")); err != nil {
		return c, err
	}
	if c.kernel, err = kernelMemory(p.VmmPid); err != nil {
		return c, err
	}
	shimPeak, err := statusKiB(p.ShimPid, "VmHWM")
	c.peak = max(shimPeak, c.shim) + c.vmm + c.kernel
	return c, err
}

// residentBeside adds up a process's mappings but for files below dir: guest RAM.
func residentBeside(pid int, dir string) (kib int, err error) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	ours := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			ours = len(fields) >= 6 && strings.HasPrefix(fields[5], dir)
		case len(fields) == 3 && fields[0] == "Rss:" && !ours:
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				return 0, err
			}
			kib += n
		}
	}
	return kib, nil
}

func statusKiB(pid int, key string) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == key {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, key)
}

// kernelMemory is the kernel's for the cgroup of a process, in KiB.
func kernelMemory(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) == 3 && parts[1] == "memory": // v1
			content, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.kmem.usage_in_bytes"))
			if err != nil {
				return 0, err
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(content)))
			return n >> 10, err
		}
	}
	return kernelMemoryV2(string(text))
}

func kernelMemoryV2(cgroups string) (int, error) {
	_, path, found := strings.Cut(cgroups, "0::")
	if !found {
		return 0, fmt.Errorf("no memory cgroup in %q", cgroups)
	}
	path, _, _ = strings.Cut(path, "\n")
	content, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if value, is := strings.CutPrefix(line, "kernel "); is {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			return n >> 10, err
		}
	}
	return 0, fmt.Errorf("memory.stat of %s has no kernel", path)
}
