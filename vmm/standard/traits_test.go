package standard_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/standard"
)

// TestTraits: a VMM accepts what its traits say that it has, and refuses what they say that it lacks.
func TestTraits(t *testing.T) {
	for _, v := range standard.Registry().All() {
		for _, arch := range []string{spec.ArchAMD64, spec.ArchARM64} {
			traits := v.Traits(arch)
			for _, c := range asked(traits) {
				t.Run(v.Name()+"/"+arch+"/"+c.name, func(t *testing.T) {
					if c.name == "disk on sata" && arch == spec.ArchARM64 && v.Name() == spec.VMMQEMU {
						t.Skip("that virt has no SATA, only QEMU itself says")
					}
					faults := refused(v, arch, c.vm)
					if c.has && len(faults) > 0 {
						t.Errorf("the traits have it, and it is refused: %v", faults)
					}
					if !c.has && len(faults) == 0 {
						t.Error("the traits lack it, and nothing refuses it")
					}
				})
			}
		}
	}
}

type question struct {
	name string
	has  bool
	vm   *specv1.VirtualMachineSpec
}

// asked are VMs that each ask for one thing that VMMs have or lack.
func asked(traits vmm.Traits) []question {
	all := []question{
		{"machine type", traits.MachineTypes, &specv1.VirtualMachineSpec{MachineType: "pc"}},
		{"video", traits.Video, &specv1.VirtualMachineSpec{Devices: &specv1.Devices{Video: new(specv1.Video)}}},
		{"no entropy", traits.WithoutEntropy, &specv1.VirtualMachineSpec{Devices: &specv1.Devices{Entropy: proto.Bool(false)}}},
		{"SMBIOS", traits.SMBIOS, &specv1.VirtualMachineSpec{System: &specv1.SystemInformation{Manufacturer: "KubeVirt"}}},
	}
	for _, bus := range []string{spec.BusVirtio, spec.BusSCSI, spec.BusSATA, spec.BusUSB} {
		all = append(all, question{"disk on " + bus, slices.Contains(traits.Disks, bus), &specv1.VirtualMachineSpec{
			Disks: []*specv1.Disk{{Name: "root", Path: "/disk", Format: spec.FormatRaw, Bus: bus}},
		}})
	}
	return all
}

// refused is what a VMM refuses of a VM.
func refused(v vmm.Planner, arch string, vm *specv1.VirtualMachineSpec) spec.FieldErrors {
	vm.Name = "a"
	target := spec.Target{ID: "3f5ae3c7-6d2c-4a6a-9c5c-0a3c1b2d4e5f", Hypervisor: spec.HypervisorKVM, VMM: v.Name(), Arch: arch, Defaults: vmm.DefaultsOf(v, arch)}
	return v.(vmm.Validator).Validate(spec.Default(vm, target, hypervisors.Registry().Layers()), arch)
}
