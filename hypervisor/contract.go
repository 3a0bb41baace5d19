package hypervisor

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// What follows is what a hypervisor may offer beside Kind and Hypervisor. Each is asked for with As, and one that is not there means
// the neutral behaviour, which is Base's. Implementations are safe for concurrent use and change nothing that they are given.

// Aliased is a hypervisor that users know by other names, too.
type Aliased interface {
	// Aliases are names that nobody else has: "hyperv-direct".
	Aliases() []string
}

// Defaulter is a hypervisor with defaults of its own.
type Defaulter interface {
	// Layers are its defaults, under its own name ("kvm") and under its name with an architecture ("kvm/amd64"); other keys are
	// refused by New. Each fills only what is unset.
	Layers() spec.Layers
}

// Validator is a hypervisor that can't give a guest everything.
type Validator interface {
	// Validate names every feature that the hypervisor can't give on the architecture (Go's name for it), each with its field and
	// what to use instead. What is not set is no fault: the hypervisor's own defaults fit it.
	Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors
}

// ThreadNamer is a hypervisor whose threads have names of their own.
type ThreadNamer interface {
	// Threads says how its threads are named.
	Threads() ThreadNames
}

// ThreadNames is how threads are named in /proc/PID/task/TID/comm.
type ThreadNames struct {
	// VCPU is a regular expression (RE2) whose first group with something in it is the number of the virtual CPU; empty: its virtual
	// CPUs have no threads of their own.
	VCPU string
	// PIT is what the names of kernel threads begin with that are a guest's interval timer, before the VMM's process id ("kvm-pit/");
	// empty: there are none.
	PIT string
}

// ResourceAdjuster is a hypervisor that says what limits a VM's processes need.
type ResourceAdjuster interface {
	AdjustResources(f ResourceFacts) Resources
}

// MemoryCoster is a hypervisor that takes memory beside what its VMM takes.
type MemoryCoster interface {
	MemoryCosts() MemoryCosts
}

// MemoryCosts is the memory that running under a hypervisor takes, beside a guest's RAM and what the VMM takes under every one.
type MemoryCosts struct {
	// Measured: the figures below were measured; else they are careful guesses.
	Measured bool
	// SecondTables: the kernel keeps page tables of guest memory beside those of the VMM's process (EPT, NPT, stage 2).
	SecondTables bool
	// VM and VCPU are the kernel's own memory for a machine and for each of its virtual CPUs, in bytes.
	VM, VCPU uint64
	// Code is what translated guest code takes, in bytes, of a guest that runs an ordinary system; CodeLimit is where the VMM begins
	// to throw translations away. Both 0: nothing is translated.
	Code, CodeLimit uint64
	// CodeVCPU is what each virtual CPU takes for translating: jump caches and software TLBs.
	CodeVCPU uint64
}

// Wrapper is a Hypervisor around another that it leaves as it is but for some methods.
type Wrapper interface {
	Unwrap() Hypervisor
}

// As finds what k, or a hypervisor that it wraps, offers beside the contract: As[Validator](k).
func As[T any](k Kind) (T, bool) {
	for k != nil {
		if t, ok := k.(T); ok {
			return t, true
		}
		w, ok := k.(Wrapper)
		if !ok {
			break
		}
		k = w.Unwrap()
	}
	var none T
	return none, false
}
