package vm

import (
	"context"
	"encoding/json"
	"time"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/pairing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
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

// choice is all that is decided about a run before anything is made.
type choice struct {
	place.Choice
	info   vmm.Info
	reason string // which hypervisor, and why
	// vmmReason is why it is this VMM.
	vmmReason string

	// vfio are the nodes of devices of the host that the VMM opens as its user.
	vfio []string
	// lockedMemory is how many bytes the VMM locks for them.
	lockedMemory uint64
}

// choose decides about hypervisor, VMM and user, and makes the plan. The only
// thing that it takes is the user id.
func (l *chooser) choose(ctx context.Context) (c *choice, err error) {
	// What an agent with other hypervisors took is not this one's to run.
	if err := l.platform.node.Hypervisors.Validate(l.spec, l.platform.arch, l.platform.Names(l.spec, l.m.place.VMM).VMMs...).Err(); err != nil {
		return nil, err
	}
	c = &choice{Choice: place.Choice{ID: l.m.Snapshot().GetId(), Start: time.Now()}}
	if c.Lease, err = l.m.place.Take(&c.Choice); err != nil {
		return nil, err
	}
	if err := l.decide(ctx, c); err != nil {
		l.m.keeper.Untake(c.Lease)
		return nil, err
	}
	return c, nil
}

// decide fills in the choice and its lease.
func (l *chooser) decide(ctx context.Context, c *choice) error {
	o, err := l.target(ctx, c)
	if err != nil {
		return err
	}
	// This and its disks are asked again when it is announced; here before its addresses, which the other has, too.
	others := l.vms.others(l.m)
	if err := onlyOne(l.m, others); err != nil {
		return err
	}
	if err := vsockFree(others, c.Spec.GetDevices().GetVsock().GetCid()); err != nil {
		return err
	}
	if c.vfio, c.lockedMemory, err = l.platform.hostFacts(others, c.Spec, c.VMM); err != nil {
		return err
	}
	disks := l.m.place.Disks(c.Spec)
	if err := disksFree(l.m, others, disks); err != nil {
		return err
	}
	l.m.setDisks(disks)
	if o.missing != nil {
		return o.missing
	}
	if err := c.complete(o); err != nil {
		return err
	}
	if inside := l.m.container; inside != nil && c.Lease.Unsaveable == "" {
		if err := inside.RefusesSave(&c.Choice); err != nil {
			c.Lease.Unsaveable, c.Lease.UnsaveableParts = err.Error(), contract.FaultsOf(err)
		}
	}
	return nil
}

// target chooses what the VM runs on and completes its specification.
func (l *chooser) target(ctx context.Context, c *choice) (option, error) {
	vmms, because, err := l.vmms()
	if err != nil {
		return option{}, err
	}
	on := l.pairable()
	options := make(map[string]option)
	pair, err := pairing.Choose(ctx, func(yield func(pairing.Candidate) bool) {
		for _, name := range vmms {
			candidate, o := l.candidate(ctx, on, &c.Choice, name)
			if options[name] = o; !yield(candidate) {
				return
			}
		}
	}, because)
	if err != nil {
		return option{}, err
	}
	o := options[pair.VMM]
	c.VMM, c.info, c.Spec = o.vmm, o.request.Info, o.request.Spec
	c.reason, c.vmmReason = pair.HypervisorReason, pair.VMMReason
	return o, nil
}

// vmms are those that the VM may have, the preferred one first, and why it can have
// no other; empty: there is a choice.
func (l *chooser) vmms() (names []string, because string, err error) {
	name := l.spec.GetVmm()
	if name == "" || name == spec.Auto {
		if names, err = l.m.place.VMMs(); len(names) == 1 {
			because = "is the only one here"
		}
		return names, because, err
	}
	if _, err := l.m.place.VMM(name); err != nil {
		return nil, "", err
	}
	if l.image != nil {
		return []string{name}, "made the image", nil
	}
	return []string{name}, "was asked for", nil
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

// complete takes the VMM's plan, and fills in the lease.
func (c *choice) complete(o option) (err error) {
	c.Plan = o.plan
	if !opens(c.Plan, o.request.HypervisorDevice) { // else the shim does it
		c.Device = o.request.HypervisorDevice
	}
	c.Lease.Start, c.Lease.VMM, c.Lease.Memory = c.Start, c.VMM.Name(), c.Plan.Memory.Path
	c.Lease.VFIO, c.Plan.LockedMemory, c.Lease.MemorySize = c.vfio, c.lockedMemory, c.Plan.Memory.Size
	if faults := vmm.Saveable(c.VMM, fixed(c.Spec)); len(faults) > 0 {
		c.Lease.Unsaveable, c.Lease.UnsaveableParts = faults.Error(), faults.Faults()
	}
	if c.Lease.Manifest, err = c.VMM.Manifest(o.request); err != nil {
		return err
	}
	return describeImage(&c.Lease.Manifest, c)
}

// fixed is what a VM has as long as it runs. Disks and networks come and go: whether they can be saved is asked when the VM is.
func fixed(s *specv1.VirtualMachineSpec) *specv1.VirtualMachineSpec {
	s = proto.CloneOf(s)
	s.Disks, s.Networks = nil, nil
	return s
}

// opens says whether the shim opens this path for the VMM.
func opens(p *plan.Plan, path string) bool {
	for _, f := range p.Files {
		if f.Kind == plan.FilePath && f.Path == path {
			return true
		}
	}
	return false
}

// describe fills in what the record says of a run.
func (c *choice) describe(vm *nodev1.VirtualMachine) {
	vm.Status.EffectiveSpec = c.Spec
	vm.Status.Hypervisor = c.Spec.GetHypervisor()
	vm.Status.HypervisorReason, vm.Status.VmmReason = c.reason, c.vmmReason
	vm.Status.Vmm = &nodev1.Vmm{Name: c.info.Name, Version: c.info.Version, Binary: c.info.Binary, LazyRestore: c.info.LazyRestore}
	vm.Status.MachineType = c.Lease.Manifest.MachineType
	vm.Status.StartedAt = timestamppb.New(c.Start)
}

// describeImage adds to a manifest what the agent wants to find in an image:
// the complete specification, with the addresses that the guest knows, and the id.
func describeImage(m *memory.Manifest, c *choice) error {
	content, err := spec.MarshalJSON(c.Spec)
	if err != nil {
		return err
	}
	m.Specification = content
	m.PlanExtras, err = json.Marshal(imageExtras{ID: c.ID})
	return err
}
