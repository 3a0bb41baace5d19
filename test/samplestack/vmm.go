package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

const (
	name = "microvm"
	// The VMM listens on two sockets: one for the shim, one for the agent.
	shimSocket  = "microvm-shim.sock"
	agentSocket = "microvm-agent.sock"
)

// microVM is the VMM without a VM.
type microVM struct{ binary string }

func (*microVM) Traits(string) vmm.Traits { return vmm.Traits{Disks: []string{"virtio"}} }

func (*microVM) Name() string { return name }

// Info runs the program, which tells its version in its first line.
func (m *microVM) Info(ctx context.Context) (vmm.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, m.binary, "--version").Output()
	if err != nil {
		return vmm.Info{}, fmt.Errorf("running %s: %w", m.binary, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return vmm.Info{}, fmt.Errorf("%s: its version is %.80q", m.binary, line)
	}
	return vmm.Info{Name: name, Version: fields[3], Binary: m.binary, Capabilities: &capabilitiesv1.VmmCapabilities{
		Name: name, Version: fields[3], Binary: m.binary, State: capabilitiesv1.State_STATE_WORKS, SnapshotKinds: []string{"stream"},
		MachineTypes: []*capabilitiesv1.MachineType{{Name: "microvm", IsDefault: true, Supported: true, MaxVcpus: 8}},
		Accelerators: []*capabilitiesv1.AcceleratorCapabilities{
			{Hypervisor: "kvm", Accelerator: "kvm", Usable: true}, {Hypervisor: "emulation", Accelerator: "tcg", Usable: true},
		},
	}}, nil
}

// Defaults leave out what the machine has not.
func (*microVM) Defaults(string) spec.VMMDefaults {
	no := false
	return spec.VMMDefaults{Disk: &specv1.Disk{ErrorPolicy: "report"}, Layer: &specv1.VirtualMachineSpec{
		MachineType: "microvm",
		Devices:     &specv1.Devices{GuestAgent: &no, Entropy: &no, Balloon: &no},
	}}
}

// Validate names what no version of it can do.
func (*microVM) Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors {
	var faults spec.FieldErrors
	if arch != "amd64" {
		faults.Add("vmm", "microvm runs guests of amd64 only: use vmm qemu")
	}
	if s.GetBoot().GetKernel().GetPath() == "" {
		faults.Add("boot.kernel.path", "microvm boots kernels only: want one, or vmm qemu")
	}
	if len(s.GetNetworks()) > 0 {
		faults.Add("networks", "microvm has none here: want no networks, or vmm qemu")
	}
	if len(s.GetHostDevices()) > 0 {
		faults.Add("hostDevices", "microvm has no PCI: want none, or vmm qemu")
	}
	for i, d := range s.GetDisks() {
		if d.GetFormat() == "qcow2" || len(d.GetBackingFiles()) > 0 {
			faults.Add(fmt.Sprintf("disks[%d].format", i), "microvm has raw disks only here: convert it, or use vmm qemu")
		}
	}
	return faults
}

// builder collects arguments and the files that they name by their descriptors.
type builder struct{ plan.Plan }

func (b *builder) arg(args ...string) { b.Args = append(b.Args, args...) }

func (b *builder) file(f plan.File) string {
	b.Files = append(b.Files, f)
	return strconv.Itoa(plan.FirstFile + len(b.Files) - 1)
}

// Plan touches nothing: each file has a number before it is open.
func (m *microVM) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	s := r.Spec
	faults := m.Validate(s, "amd64")
	size, err := spec.ParseQuantity(s.GetMemory().GetSize())
	if err != nil {
		faults.Add("memory.size", "%v", err)
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	// The VMM has RAM to itself, and saves it with its state.
	b := &builder{plan.Plan{Program: r.Info.Binary, Memory: plan.Memory{Size: size, InVMM: true}}}
	accelerator := "tcg"
	if r.Hypervisor == "kvm" {
		accelerator = "kvm"
	}
	b.arg("-M", "microvm,acpi=on,auto-kernel-cmdline=off", "-accel", accelerator, "-cpu", "max", "-m", fmt.Sprintf("%dB", size), "-smp", strconv.Itoa(int(spec.VCPUs(s.GetCpu()))))
	b.arg("-no-user-config", "-nodefaults", "-display", "none", "-S", "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	b.arg("-chardev", "socket,id=console,fd="+b.file(plan.File{Kind: plan.FileConsole}), "-serial", "chardev:console")
	for _, socket := range []string{shimSocket, agentSocket} {
		id := strings.TrimSuffix(socket, ".sock")
		b.arg("-chardev", "socket,server=on,wait=off,id="+id+",fd="+b.file(plan.File{Kind: plan.FileListen, Path: socket}), "-mon", "mode=control,chardev="+id)
	}
	kernel := s.GetBoot().GetKernel()
	b.arg("-kernel", b.reopened("boot.kernel.path", kernel.GetPath()))
	if kernel.GetInitrd() != "" {
		b.arg("-initrd", b.reopened("boot.kernel.initrd", kernel.GetInitrd()))
	}
	if kernel.GetCmdline() != "" {
		b.arg("-append", kernel.GetCmdline())
	}
	for i, d := range s.GetDisks() {
		b.disk(i, d)
	}
	if r.Image != nil {
		b.arg("-incoming", "defer")
	}
	return &b.Plan, nil
}

func (b *builder) reopened(field, path string) string {
	return "/proc/self/fd/" + b.file(plan.File{Kind: plan.FilePath, Field: field, Path: path, Reopened: true})
}

// disk names the specification's disk in its file: vmlet knows from that what it must be, and
// locks it.
func (b *builder) disk(i int, d *specv1.Disk) {
	f := plan.File{Kind: plan.FilePath, Path: d.GetPath(), DiskName: d.GetName(), Write: true}
	if d.GetReadOnly() {
		f.DiskName, f.PartOf, f.Write = "", d.GetName(), false
	}
	fd := b.file(f)
	id := fmt.Sprintf("disk%d", i)
	b.arg("-add-fd", "fd="+fd+",set="+fd, "-blockdev", fmt.Sprintf("driver=file,filename=/dev/fdset/%s,node-name=%s,read-only=%s", fd, id, onOff(d.GetReadOnly())))
	b.arg("-device", "virtio-blk-device,drive="+id)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// Manifest says what an image of such a VM needs.
func (m *microVM) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	size, err := spec.ParseQuantity(r.Spec.GetMemory().GetSize())
	return memory.Manifest{
		Layout: memory.LayoutStream, VMM: memory.VMM{Name: name, Version: r.Info.Version}, Accelerator: r.Hypervisor, MachineType: "microvm",
		MemorySize: size, Regions: []memory.Region{{Name: "ram", Size: size}},
	}, err
}

// CheckImage takes images of the very version.
func (m *microVM) CheckImage(ctx context.Context, image *memory.Manifest) error {
	info, err := m.Info(ctx)
	if err != nil {
		return err
	}
	if image.VMM.Version != info.Version {
		return fmt.Errorf("it was saved by %.40s, and this is %s", image.VMM.Version, info.Version)
	}
	return nil
}
