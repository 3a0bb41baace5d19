package convert

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/vmm"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// Planner is the VMM that an instance names. Of one that names none it is the one that nodes prefer: that has all that KubeVirt
// gives every guest unasked.
func Planner(vmi *kubevirtv1.VirtualMachineInstance) vmm.Planner {
	known := vmms.Registry()
	if named, is := known.Get(vmi.Annotations[contract.AnnotationVMM]); is {
		return named
	}
	return known.All()[0]
}

// Traits are those of the instance's VMM: what KubeVirt gives every guest unasked, and this VMM lacks, is left out.
func Traits(vmi *kubevirtv1.VirtualMachineInstance, arch string) vmm.Traits {
	return Planner(vmi).Traits(arch)
}

// traits are those of the VMM of the instance that is converted.
func (in Input) traits() vmm.Traits { return Traits(in.Instance, Architecture(in)) }

// defaultMachine is the machine type of guests whose VMM, the one that nodes prefer, is asked for none.
func defaultMachine(arch string) string {
	return vmm.DefaultsOf(vmms.Registry().All()[0], arch).Layer.GetMachineType()
}
