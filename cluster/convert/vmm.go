package convert

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/described"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// VMMs are those that instances may name: vmlet's own, and those that the virtualisation stack brings.
func VMMs(c configuration.Configuration) *vmm.Registry { return c.Stack.Registry() }

// Planner is the VMM that an instance names. Of one that names none it is the one that nodes prefer: that has all that KubeVirt
// gives every guest unasked. Of a VMM that is not known, as its stack has gone, it has the least.
func Planner(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration) vmm.Planner {
	known := VMMs(c)
	name := vmi.Annotations[contract.AnnotationVMM]
	if named, is := known.Get(name); is {
		return named
	}
	if name == "" || name == spec.Auto {
		return known.All()[0]
	}
	return described.VMM{ID: name}
}

// Traits are those of the instance's VMM: what KubeVirt gives every guest unasked, and this VMM lacks, is left out.
func Traits(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration, arch string) vmm.Traits {
	return Planner(vmi, c).Traits(arch)
}

// traits are those of the VMM of the instance that is converted.
func (in Input) traits() vmm.Traits { return Traits(in.Instance, in.Configuration, Architecture(in)) }

// defaultMachine is the machine type of guests whose VMM, the one that nodes prefer, is asked for none.
func defaultMachine(arch string) string {
	return vmm.DefaultsOf(vmms.Registry().All()[0], arch).Layer.GetMachineType()
}
