package convert

import (
	"slices"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// Stack is a VMM under a hypervisor, with a specification that has their defaults.
type Stack struct {
	Hypervisor hypervisor.Kind
	VMM        vmm.Planner
	Spec       *specv1.VirtualMachineSpec
	// Faults are what the VMM can't do of it, by the specification's fields.
	Faults spec.FieldErrors
}

// Stacks are those that a specification names; "auto" names all. The first is that which
// nodes prefer.
func Stacks(s *specv1.VirtualMachineSpec, c configuration.Configuration, arch string) (stacks []Stack) {
	registry := hypervisors.Registry()
	for _, h := range registry.All() {
		if !names(s.GetHypervisor(), h.Name()) {
			continue
		}
		for _, v := range VMMs(c).All() {
			if names(s.GetVmm(), v.Name()) {
				stacks = append(stacks, stack(s, arch, h, v, registry.Layers()))
			}
		}
	}
	return stacks
}

func names(word, name string) bool { return word == "" || word == spec.Auto || word == name }

func stack(s *specv1.VirtualMachineSpec, arch string, h hypervisor.Kind, v vmm.Planner, layers spec.Layers) Stack {
	complete := spec.Default(s, spec.Target{
		ID: s.GetSystem().GetUuid(), Hypervisor: h.Name(), VMM: v.Name(), Arch: arch,
		Defaults: vmm.DefaultsOf(v, arch),
	}, layers)
	out := Stack{Hypervisor: h, VMM: v, Spec: complete}
	if validator, is := v.(vmm.Validator); is {
		out.Faults = validator.Validate(complete, arch)
	}
	return out
}

// Faults returns why an instance can be run nowhere: what Specification refuses, or
// spec.FieldErrors of what no specification may have, and of what its VMM, or each where it
// names none, can't do. It is meant for admission, where claims may not exist yet.
func Faults(in Input) error {
	in.admitted = true
	s, _, err := Specification(in)
	if err != nil {
		return err
	}
	arch := Architecture(in)
	s.Name = "vm" // its pod's, whatever that is
	if faults := hypervisors.Registry().Validate(s, arch, VMMs(in.Configuration).Names()...); len(faults) > 0 {
		return faults
	}
	return everywhere(Stacks(s, in.Configuration, arch)).Err()
}

// Unsaveable names what keeps the guest of an instance from hibernating in a mode, by the specification's fields; none:
// it can, as far as is known, or the mode is none. Of the VMMs that can run it, that decides which nodes prefer.
func Unsaveable(in Input, mode string) []contract.Fault {
	in.admitted = true
	s, _, err := Specification(in)
	if err != nil || mode == "" {
		return nil
	}
	stacks := Stacks(s, in.Configuration, Architecture(in))
	if len(stacks) == 0 {
		return nil
	}
	on := stacks[max(0, slices.IndexFunc(stacks, func(s Stack) bool { return len(s.Faults) == 0 }))]
	if mode == kubevirtv1.HibernateSave {
		return vmm.Saveable(on.VMM, on.Spec).Faults()
	}
	return contract.FaultsOf(vmm.Suspendable(on.VMM, on.Spec))
}

// everywhere are the faults of the first stack if each has some.
func everywhere(stacks []Stack) spec.FieldErrors {
	for _, s := range stacks {
		if len(s.Faults) == 0 {
			return nil
		}
	}
	if len(stacks) == 0 {
		return nil
	}
	return stacks[0].Faults
}
