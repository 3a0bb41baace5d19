package vmm

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Defaulter is a VMM with defaults of its own.
type Defaulter interface {
	// Defaults are those for guests of this architecture (Go's name for it). They
	// depend on nothing else, and what they are made of is the caller's.
	Defaults(arch string) spec.VMMDefaults
}

// DefaultsOf are those that a VMM brings; one that brings none has the zero value.
func DefaultsOf(p Planner, arch string) spec.VMMDefaults {
	if d, ok := p.(Defaulter); ok {
		return d.Defaults(arch)
	}
	return spec.VMMDefaults{}
}

// Validator is a VMM that can tell by a specification alone what it can't do: its
// program need not be there.
type Validator interface {
	// Validate names every field that asks for what the VMM has not, whichever
	// version of it there is, each with what to use instead. The specification has
	// all its defaults, but for what a hypervisor that is not chosen yet would
	// give it, and no faults that spec.Validate finds.
	Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors
}
