package vm

import (
	"context"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/pairing"
)

// wanted is what is to be run.
type wanted struct {
	m *VM
	// spec as the user wrote it, or as the image has it.
	spec *specv1.VirtualMachineSpec
	// image that the VM goes on from; nil: it boots.
	image  *vmm.Image
	paused bool
}

// chooser decides what a VM is run with.
type chooser struct {
	wanted
	platform *Platform
	vms      *Registry
}

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
