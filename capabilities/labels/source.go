package labels

import (
	"strings"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
)

// source is a fact of the document that labels follow from.
type source struct {
	// hypervisor, vmm: it is a fact of the one that was chosen. While the choice is
	// open, so is the fact.
	hypervisor, vmm bool
	// named: it is a fact of the name that follows the key, so that each label of the
	// family has its own.
	named bool
	path  func(c choice, name string) fact.Path
}

// from is a fact that a document has once.
func from(p fact.Path) source {
	return source{path: func(choice, string) fact.Path { return p }}
}

// fromHypervisor is a fact of the chosen hypervisor.
func fromHypervisor(f fact.HypervisorField) source {
	return source{hypervisor: true, path: func(c choice, _ string) fact.Path { return fact.OfHypervisor(c.hypervisor, f) }}
}

// fromVMM is a fact of the chosen VMM.
func fromVMM(f fact.VMMField) source {
	return source{vmm: true, path: func(c choice, _ string) fact.Path { return fact.OfVMM(c.vmm, f) }}
}

// fromAccelerator is a fact of the chosen VMM under the chosen hypervisor.
func fromAccelerator(f fact.AcceleratorField) source {
	return source{hypervisor: true, vmm: true, path: func(c choice, _ string) fact.Path {
		return fact.OfAccelerator(c.vmm, c.hypervisor, f)
	}}
}

// fromNamedHypervisor is a fact of the hypervisor whose name follows the key, up to a dot.
func fromNamedHypervisor(f fact.HypervisorField) source {
	return source{named: true, path: func(_ choice, name string) fact.Path {
		name, _, _ = strings.Cut(name, ".")
		return fact.OfHypervisor(name, f)
	}}
}

// fromFurther is a fact of the chosen VMM under the hypervisor with whose name the label's goes on.
func fromFurther(f fact.AcceleratorField) source {
	return source{named: true, vmm: true, path: func(c choice, name string) fact.Path {
		hypervisor, _, _ := strings.Cut(name, ".")
		return fact.OfAccelerator(c.vmm, hypervisor, f)
	}}
}

// fromNamedVMM is a fact of the VMM whose name follows the key.
func fromNamedVMM(f fact.VMMField) source {
	return source{named: true, path: func(_ choice, name string) fact.Path { return fact.OfVMM(name, f) }}
}

// fromKVMsModules is the host's fact "nested", which is read of KVM's modules and says
// nothing of other hypervisors.
func fromKVMsModules() source {
	return source{hypervisor: true, path: func(c choice, _ string) fact.Path {
		if c.hypervisor == hypervisor.NameKVM {
			return fact.HostNested
		}
		return ""
	}}
}
