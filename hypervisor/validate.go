package hypervisor

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Validate returns all faults of a specification, before or after its defaults are filled in: those of spec.Validate, a hypervisor
// that is not known, and what the hypervisor that it names can't do on the architecture (Go's name for it). vmms are the names of
// the VMMs; without any, every name of one is taken.
func (r *Registry) Validate(s *specv1.VirtualMachineSpec, arch string, vmms ...string) spec.FieldErrors {
	faults := spec.ValidateNames(s, spec.Names{Hypervisors: r.Names(), VMMs: vmms})
	h, known := r.byName[s.GetHypervisor()]
	if !known {
		return faults
	}
	if v, ok := As[Validator](h); ok {
		faults = append(faults, v.Validate(s, arch)...)
	}
	return faults
}
