package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/memory"
	"github.com/vmlet/vmlet/vmm/plan"
	"github.com/vmlet/vmlet/vmm/spec"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// choice is all that is decided about a run before anything is made.
type choice struct {
	id     string
	spec   *vmletv1.VirtualMachineSpec // complete
	vmm    vmm.VMM
	info   vmm.Info
	reason string // which hypervisor, and why
	plan   *plan.Plan
	lease  *lease
	start  time.Time

	hypervisorDevice string
}

// choose decides about hypervisor, VMM and user, and makes the plan. The only
// thing that it takes is the user id.
func (l *launch) choose(ctx context.Context) error {
	c := choice{id: l.m.snapshot().GetId(), start: time.Now()}
	req, err := l.target(ctx, &c)
	if err != nil {
		return err
	}
	if err := l.agent.vsockFree(l.m, c.spec.GetDevices().GetVsock().GetCid()); err != nil {
		return err
	}
	if c.lease, err = l.m.home.take(&c, &req); err != nil {
		return err
	}
	if err := c.complete(req); err != nil {
		l.m.home.untake(c.lease)
		return err
	}
	l.choice = c
	return nil
}

// target chooses what the VM runs on and completes its specification.
func (l *launch) target(ctx context.Context, c *choice) (vmm.PlanRequest, error) {
	var req vmm.PlanRequest
	a := l.agent
	// What an agent with other hypervisors took is not this one's to run.
	if err := a.validate(l.spec); err != nil {
		return req, err
	}
	var err error
	if c.vmm, err = l.m.home.vmm(l.spec.GetVmm()); err != nil {
		return req, err
	}
	if c.info, err = c.vmm.Info(ctx); err != nil {
		return req, failf(codes.FailedPrecondition, "VMM %s: %w", c.vmm.Name(), err)
	}
	h, reason, err := a.node.hypervisors.Choose(ctx, a.hypervisorFor(l.spec), func(h hypervisor.Hypervisor) error {
		return errors.Join(l.m.home.permits(h), vmm.RunsUnder(c.info.Capabilities, h.Name()))
	})
	if err != nil {
		return req, err
	}
	if err := l.m.home.permits(h); err != nil { // one that was asked for by name
		return req, failf(codes.FailedPrecondition, "hypervisor: %w", err)
	}
	c.reason = reason
	c.spec = spec.Default(l.spec, spec.Target{ID: c.id, Hypervisor: h.Name(), VMM: c.vmm.Name(), Arch: a.arch, Defaults: vmm.DefaultsOf(c.vmm, a.arch)}, a.layers)
	if err := a.validate(c.spec); err != nil {
		return req, err
	}
	return vmm.PlanRequest{
		ID:               c.id,
		Spec:             c.spec,
		Hypervisor:       h.Name(),
		Accelerator:      h.Accelerator(),
		CPUQuirks:        h.Check(ctx).CPUQuirks,
		Info:             c.info,
		HypervisorDevice: h.Device(),
		Image:            l.image,
		Paused:           l.paused,
	}, nil
}

// hypervisorFor is the specification's word, or the node's where it has none.
func (a *agent) hypervisorFor(s *vmletv1.VirtualMachineSpec) string {
	if name := s.GetHypervisor(); name != "" && name != hypervisor.NameAuto {
		return name
	}
	return a.defaultHypervisor
}

// complete has the VMM make the plan, and fills in the lease.
func (c *choice) complete(req vmm.PlanRequest) (err error) {
	if c.plan, err = c.vmm.Plan(req); err != nil {
		return err
	}
	c.hypervisorDevice = req.HypervisorDevice
	c.lease.Start, c.lease.VMM, c.lease.Memory = c.start, c.vmm.Name(), c.plan.Memory.Path
	if c.lease.Manifest, err = c.vmm.Manifest(req); err != nil {
		return err
	}
	return describeImage(&c.lease.Manifest, c)
}

// device is the path of what the VMM opens itself as its user; empty: nothing.
func (c *choice) device() string {
	if opens(c.plan, c.hypervisorDevice) {
		return "" // the shim does it
	}
	return c.hypervisorDevice
}

// plannedMemory is the guest's memory in bytes; the specification is valid.
func (c *choice) plannedMemory() uint64 {
	size, _ := spec.ParseQuantity(c.spec.GetMemory().GetSize())
	return size
}

// runID tells one run of a VM from another.
func runID(id string, start time.Time) string { return fmt.Sprintf("%s-%d", id, start.UnixNano()) }

// runIDOf is that of a VM's present or last run.
func runIDOf(vm *vmletv1.VirtualMachine) string {
	return runID(vm.GetId(), vm.GetStatus().GetStartedAt().AsTime())
}

// descriptors numbers what goes with a plan: the taps, in the order of the
// networks, and then cloud-init's seed. -1: it has none.
func descriptors(s *vmletv1.VirtualMachineSpec) (taps []int, seed int) {
	taps = make([]int, len(s.GetNetworks()))
	next := 0
	for i, n := range s.GetNetworks() {
		taps[i] = -1
		if n.GetTap() != nil {
			taps[i] = next
			next++
		}
	}
	if s.GetCloudInit() == nil {
		return taps, -1
	}
	return taps, next
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
func (c *choice) describe(vm *vmletv1.VirtualMachine) {
	vm.Status.EffectiveSpec = c.spec
	vm.Status.Hypervisor = c.spec.GetHypervisor()
	vm.Status.HypervisorReason = c.reason
	vm.Status.Vmm = &vmletv1.Vmm{Name: c.info.Name, Version: c.info.Version, Binary: c.info.Binary, LazyRestore: c.info.LazyRestore}
	vm.Status.StartedAt = timestamppb.New(c.start)
}

// vsockFree refuses a context id that another running VM has: the kernel
// would, but late and without a name.
func (a *agent) vsockFree(m *machine, cid uint32) error {
	if cid == 0 {
		return nil
	}
	for _, other := range a.all() {
		if other == m || other.running() == nil {
			continue
		}
		if other.snapshot().GetStatus().GetEffectiveSpec().GetDevices().GetVsock().GetCid() == cid {
			return failf(codes.FailedPrecondition, "devices.vsock.cid: %d is that of vm %s, which runs", cid, other.name)
		}
	}
	return nil
}

// describeImage adds to a manifest what the agent wants to find in an image:
// the complete specification, with the addresses that the guest knows, and the id.
func describeImage(m *memory.Manifest, c *choice) error {
	content, err := spec.MarshalJSON(c.spec)
	if err != nil {
		return err
	}
	m.Specification = content
	m.PlanExtras, err = json.Marshal(imageExtras{ID: c.id})
	return err
}

// imageExtras is what an image says of a VM beside its specification.
type imageExtras struct {
	ID string `json:"id"`
}
