package vm

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/hypervisor"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// Platform is what specifications are validated and completed for.
type Platform struct {
	node   *node.Node
	layers spec.Layers
	arch   string
	// defaultHypervisor is that of specifications which say "auto".
	defaultHypervisor string
}

// vmmFinder finds the VMM of a name where a VM is.
type vmmFinder func(name string) (vmm.VMM, error)

// Validate returns all faults of a specification that are known before it is run:
// its own, and what the hypervisor and the VMM that it names can't do.
func (p *Platform) Validate(ctx context.Context, s *specv1.VirtualMachineSpec, find vmmFinder) error {
	faults := p.node.Hypervisors.Validate(s, p.arch, p.Names(s, find).VMMs...)
	v, err := find(s.GetVmm())
	if err != nil || spec.Validate(s) != nil {
		return faults.Err() // which VMM it is, and whether that is there, is seen at its start
	}
	if own, ok := v.(vmm.Validator); ok {
		named := s.GetHypervisor()
		if named == hypervisor.NameAuto {
			named = ""
		}
		faults = append(faults, own.Validate(spec.Default(s, p.target("", named, v), p.layers), p.arch)...)
	}
	return advised(ctx, faults.Err(), find)
}

// Names are those that a specification may have: the node's, and that of the VMM that it names if that is
// found where the VM is.
func (p *Platform) Names(s *specv1.VirtualMachineSpec, find vmmFinder) spec.Names {
	names := p.node.Names()
	if v, err := find(s.GetVmm()); err == nil && !slices.Contains(names.VMMs, v.Name()) {
		names.VMMs = append(names.VMMs, v.Name())
	}
	return names
}

// Identify gives an image's VM the name and the identity that were asked for.
func (p *Platform) Identify(i *Image, o RestoreOptions, find vmmFinder) error {
	if o.Name != "" {
		i.Spec.Name = o.Name
	}
	if o.NewIdentity {
		i.ID = uuid.NewString()
		for _, n := range i.Spec.GetNetworks() {
			n.Mac = "" // made from the id
		}
	}
	// What the hypervisor can't do is reported when it is known that the image is one
	// for this node.
	return spec.ValidateNames(i.Spec, p.Names(i.Spec, find)).Err()
}

// target is what a specification is completed for.
func (p *Platform) target(id, hypervisor string, v vmm.VMM) spec.Target {
	return spec.Target{ID: id, Hypervisor: hypervisor, VMM: v.Name(), Arch: p.arch, Defaults: vmm.DefaultsOf(v, p.arch)}
}

// completed is the specification that a VM which doesn't run would have, as far as it
// is known: what it runs on is chosen at its start.
func (p *Platform) completed(vm *nodev1.VirtualMachine) *specv1.VirtualMachineSpec {
	target := spec.Target{ID: vm.GetId(), Arch: p.arch}
	if v, err := p.node.VMM(vm.GetSpec().GetVmm()); err == nil {
		target = p.target(vm.GetId(), "", v)
	}
	return spec.Default(vm.GetSpec(), target, p.layers)
}

// hypervisorFor is the specification's word, or the node's where it has none.
func (p *Platform) hypervisorFor(s *specv1.VirtualMachineSpec) string {
	if name := s.GetHypervisor(); name != "" && name != hypervisor.NameAuto {
		return name
	}
	return p.defaultHypervisor
}

// advised leaves in an error's faults only advice that can be taken: to use another VMM,
// where that can be used.
func advised(ctx context.Context, err error, find vmmFinder) error {
	var faults spec.FieldErrors
	if errors.As(err, &faults) {
		faults.Advise(func(name string) bool {
			v, err := find(name)
			if err == nil {
				_, err = v.Info(ctx)
			}
			return err == nil
		})
	}
	return err
}

// withFaults is an error that says all that is wrong with a specification: its
// faults, and those in err that are none of them. An err of another kind is lost
// where there are faults, from which it may follow.
func withFaults(faults spec.FieldErrors, err error) error {
	var more spec.FieldErrors
	switch {
	case len(faults) == 0:
		return err
	case !errors.As(err, &more):
		return faults
	}
	for _, f := range more {
		if !slices.ContainsFunc(faults, func(g spec.FieldError) bool { return g.Field == f.Field && g.Text() == f.Text() }) {
			faults = append(faults, f)
		}
	}
	return faults
}
