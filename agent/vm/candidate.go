package vm

import (
	"context"
	"errors"
	"slices"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/pairing"
)

// option is a VMM that the VM of a launch could have, and its plan.
type option struct {
	vmm     vmm.VMM
	request vmm.PlanRequest
	plan    *plan.Plan
	// missing is what the VM's place can't give; nil: nothing.
	missing error
}

// pairable is what VMMs may be paired with where the VM is. Each hypervisor is checked once.
func (l *chooser) pairable() pairing.Node {
	on := pairing.Node{Hypervisors: l.platform.node.Hypervisors.Once(), Hypervisor: l.platform.hypervisorFor(l.spec)}
	if l.m.container == nil {
		return on
	}
	on.Forbidden = make(map[string]error)
	for _, h := range on.Hypervisors.All() {
		on.Forbidden[h.Name()] = l.m.container.Permits(h)
	}
	return on
}

// candidate has a VMM plan the VM, if that can be run with it.
func (l *chooser) candidate(ctx context.Context, on pairing.Node, c *place.Choice, name string) (pairing.Candidate, option) {
	v, err := l.m.place.VMM(name)
	var info vmm.Info
	if err == nil {
		info, err = v.Info(ctx)
	}
	candidate := on.Candidate(ctx, name, info.Capabilities, err)
	if candidate.Hypervisor == nil {
		return candidate, option{}
	}
	o := option{vmm: v, request: l.request(ctx, c.ID, v, info, candidate.Hypervisor)}
	o.missing = l.m.place.Describe(c.Lease, &o.request)
	o.plan, err = v.Plan(o.request)
	// All faults are reported at once.
	err = withFaults(l.platform.node.Hypervisors.Validate(o.request.Spec, l.platform.arch, l.platform.Names(o.request.Spec, l.m.place.VMM).VMMs...), err)
	if err := advised(ctx, err, l.m.place.VMM); err != nil {
		candidate.Refuse(err)
	}
	return candidate, o
}

// request is what a VMM would plan for under a hypervisor, but for what the place gives.
func (l *chooser) request(ctx context.Context, id string, v vmm.VMM, info vmm.Info, h hypervisor.Hypervisor) vmm.PlanRequest {
	return vmm.PlanRequest{
		ID:               id,
		Spec:             spec.Default(l.spec, l.platform.target(id, h.Name(), v), l.platform.layers),
		Hypervisor:       h.Name(),
		Accelerator:      h.Accelerator(),
		CPUQuirks:        h.Check(ctx).CPUQuirks,
		Info:             info,
		HypervisorDevice: h.Device(),
		Image:            l.image,
		Paused:           l.paused,
	}
}

// vmmFinder finds the VMM of a name where a VM is.
type vmmFinder func(name string) (vmm.VMM, error)

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

// target is what a specification is completed for.
func (p *Platform) target(id, hypervisor string, v vmm.VMM) spec.Target {
	return spec.Target{ID: id, Hypervisor: hypervisor, VMM: v.Name(), Arch: p.arch, Defaults: vmm.DefaultsOf(v, p.arch)}
}
