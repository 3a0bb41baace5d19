// Package fact names the parts of the capabilities document that may be unknown, as
// UnknownFact.fact has them: those who could not ask for one and those who go by it
// spell it through this package.
//
// A Path is made of the document's fields in ProtoJSON's spelling; a member of a list is
// named by its name: "hypervisors.kvm.tsc". Nothing of the document's values is here.
package fact

import "strings"

// Hypervisor is all of the hypervisor of this name.
func Hypervisor(name string) Path { return Hypervisors + "." + Path(name) }

// OfHypervisor is one part of it.
func OfHypervisor(name string, f HypervisorField) Path { return Hypervisor(name) + "." + Path(f) }

// VMM is all of the VMM of this name.
func VMM(name string) Path { return VMMs + "." + Path(name) }

// OfVMM is one part of it.
func OfVMM(name string, f VMMField) Path { return VMM(name) + "." + Path(f) }

// Accelerator is all that a VMM can do under a hypervisor.
func Accelerator(vmm, hypervisor string) Path {
	return VMM(vmm) + ".accelerators." + Path(hypervisor)
}

// OfAccelerator is one part of it.
func OfAccelerator(vmm, hypervisor string, f AcceleratorField) Path {
	return Accelerator(vmm, hypervisor) + "." + Path(f)
}

// Touches reports whether the two have a part in common: they are the same, or one is
// below the other. An empty path touches nothing.
func (p Path) Touches(other Path) bool {
	if p == "" || other == "" {
		return false
	}
	return strings.HasPrefix(string(p)+".", string(other)+".") || strings.HasPrefix(string(other)+".", string(p)+".")
}

// Member takes the path of a list's member apart: "hypervisors.kvm.tsc" into
// "hypervisors", "kvm" and "tsc". What the path doesn't have is empty.
func (p Path) Member() (list Path, name, rest string) {
	first, below, _ := strings.Cut(string(p), ".")
	name, rest, _ = strings.Cut(below, ".")
	return Path(first), name, rest
}
