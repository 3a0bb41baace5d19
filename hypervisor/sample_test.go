package hypervisor_test

import (
	"context"
	"fmt"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm/qemu"
	"golang.org/x/sys/unix"
)

// docs/adding-a-hypervisor.md shows what follows, piece by piece; a test compares them.

// Sample is a hypervisor behind /dev/sample.
type Sample struct {
	hypervisor.Base
}

// Name is what a specification says.
func (Sample) Name() string { return "sample" }

// Accelerator is what QEMU's -accel takes, VirtType libvirt's domain type.
func (Sample) Accelerator() string { return "sample" }
func (Sample) VirtType() string    { return "sample" }

// DeviceRequests are its own device, and what every VM can use.
func (s Sample) DeviceRequests() []hypervisor.DeviceRequest {
	own := []hypervisor.DeviceRequest{{Resource: "devices.kubevirt.io/sample", Path: "/dev/sample"}}
	return append(own, s.Base.DeviceRequests()...)
}

// Local is the Sample of the node whose files are below Roots: a tree of another machine can be read.
type Local struct {
	Sample
	Roots sysfs.Roots
}

// Device is the device node under the root.
func (l Local) Device() string { return l.Roots.DevPath("sample") }

// Check tries it.
func (l Local) Check(ctx context.Context) hypervisor.Status {
	return device.Bounded(ctx, l.Device(), func(context.Context) hypervisor.Status {
		fd, fail := device.Open(l.Device(), func() string { return "load the sample module (modprobe sample)" })
		if fail != nil {
			return fail.Status()
		}
		unix.Close(fd)
		return hypervisor.Status{Level: hypervisor.Works}
	})
}

// DependsOn is its device, and its modules' parameters.
func (Local) DependsOn() hypervisor.Dependencies {
	return hypervisor.Dependencies{
		Devices: []hypervisor.DeviceNode{{Name: "sample", Path: "sample", Remedy: "load the sample module (modprobe sample)"}},
		Modules: []string{"sample", "sample_*"},
	}
}

// Layers are its defaults: for all of its machines, and for those on amd64.
func (Sample) Layers() spec.Layers {
	return spec.Layers{
		"sample":       {Cpu: &specv1.CPU{Model: "host"}},
		"sample/amd64": {MachineType: "microvm"},
	}
}

// Validate names what it can't do, and what to use instead.
func (Sample) Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors {
	var faults spec.FieldErrors
	if s.GetMemory().GetHugePages() != nil {
		faults.Add("memory.hugePages", "sample has none on %s: want ordinary pages, or hypervisor kvm", arch)
	}
	return faults
}

// Threads says how the VMM names its virtual CPUs.
func (Sample) Threads() hypervisor.ThreadNames {
	return hypervisor.ThreadNames{VCPU: `^CPU (\d+)/SAMPLE$`}
}

// MemoryCosts is what the kernel keeps for a machine beside its RAM.
func (Sample) MemoryCosts() hypervisor.MemoryCosts {
	return hypervisor.MemoryCosts{SecondTables: true, VM: 1 << 20, VCPU: 256 << 10}
}

// Example puts a hypervisor of one's own beside another and asks the registry what follows for a VM.
func Example() {
	registry, err := hypervisor.NewLocal(
		Local{Roots: sysfs.Roots{Dev: "/made/up"}},
		emulation.Emulation{},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	chosen, reason, err := registry.Choose(context.Background(), hypervisor.NameAuto, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(chosen.Name())
	fmt.Println(reason)

	vm := &specv1.VirtualMachineSpec{Name: "web-1", Hypervisor: "sample", Memory: &specv1.Memory{HugePages: &specv1.HugePages{PageSize: "2Mi"}}}
	target := spec.Target{ID: "id", Hypervisor: "sample", VMM: "qemu", Arch: "amd64", Defaults: new(qemu.QEMU).Defaults("amd64")}
	vm = spec.Default(vm, target, registry.Layers())
	fmt.Println(vm.GetMachineType(), vm.GetCpu().GetModel(), vm.GetBoot().GetFirmware(), vm.GetMemory().GetSize())
	fmt.Println(registry.Validate(vm, "amd64"))

	name, warning := registry.Default("xen")
	fmt.Println(name)
	fmt.Println(warning)

	// Output:
	// emulation
	// emulation, because sample is unusable (/made/up/sample: no such file or directory (ENOENT))
	// microvm host bios 512Mi
	// memory.hugePages: sample has none on amd64: want ordinary pages, or hypervisor kvm
	// auto
	// the configured default is an unknown hypervisor "xen": choose auto or sample, emulation; auto is used instead
}
