package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/pairing"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// choice is all that is decided about a run before anything is made.
type choice struct {
	id     string
	spec   *specv1.VirtualMachineSpec // complete
	vmm    vmm.VMM
	info   vmm.Info
	reason string // which hypervisor, and why
	// vmmReason is why it is this VMM.
	vmmReason string
	plan      *plan.Plan
	lease     *Lease
	start     time.Time

	hypervisorDevice string
	// vfio are the nodes of devices of the host that the VMM opens as its user.
	vfio []string
	// lockedMemory is how many bytes the VMM locks for them.
	lockedMemory uint64
}

// choose decides about hypervisor, VMM and user, and makes the plan. The only
// thing that it takes is the user id.
func (l *launch) choose(ctx context.Context) error {
	c := choice{id: l.m.snapshot().GetId(), start: time.Now()}
	req, err := l.target(ctx, &c)
	if err != nil {
		return err
	}
	if err := l.manager.vsockFree(l.m, c.spec.GetDevices().GetVsock().GetCid()); err != nil {
		return err
	}
	if err := l.manager.hostFacts(l.m, &c); err != nil {
		return err
	}
	if c.lease, err = l.m.place.take(&c, &req); err != nil {
		return err
	}
	if err := c.complete(req); err != nil {
		l.m.place.untake(c.lease)
		return err
	}
	if err := l.m.place.refusesSave(&c); err != nil && c.lease.Unsaveable == "" {
		c.lease.Unsaveable = err.Error()
	}
	l.choice = c
	return nil
}

// target chooses what the VM runs on and completes its specification.
func (l *launch) target(ctx context.Context, c *choice) (vmm.PlanRequest, error) {
	// What an agent with other hypervisors took is not this one's to run.
	if err := l.manager.node.Hypervisors.Validate(l.spec, l.manager.arch).Err(); err != nil {
		return vmm.PlanRequest{}, err
	}
	vmms, because, err := l.vmms()
	if err != nil {
		return vmm.PlanRequest{}, err
	}
	t := &trial{launch: l, id: c.id, vmms: make(map[string]vmm.VMM), infos: make(map[string]vmm.Info), requests: make(map[string]vmm.PlanRequest)}
	pair, err := pairing.Choose(ctx, pairing.Request{
		VMMs: vmms, Because: because,
		Hypervisors: l.manager.node.Hypervisors.Once(), Hypervisor: l.manager.hypervisorFor(l.spec),
		Ask: t.ask, Permits: l.m.place.permits, Accepts: t.accepts,
	})
	if err != nil {
		return vmm.PlanRequest{}, err
	}
	req := t.requests[pair.VMM]
	c.vmm, c.info, c.spec = t.vmms[pair.VMM], req.Info, req.Spec
	c.reason, c.vmmReason = pair.HypervisorReason, pair.VMMReason
	return req, nil
}

// vmms are those that the VM may have, the preferred one first, and why it can have
// no other; empty: there is a choice.
func (l *launch) vmms() (names []string, because string, err error) {
	name := l.spec.GetVmm()
	if name == "" || name == spec.Auto {
		if names, err = l.m.place.vmms(); len(names) == 1 {
			because = "is the only one here"
		}
		return names, because, err
	}
	if _, err := l.m.place.vmm(name); err != nil {
		return nil, "", err
	}
	if l.image != nil {
		return []string{name}, "made the image", nil
	}
	return []string{name}, "was asked for", nil
}

// hypervisorFor is the specification's word, or the node's where it has none.
func (a *Manager) hypervisorFor(s *specv1.VirtualMachineSpec) string {
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
	c.lease.VFIO, c.plan.LockedMemory, c.lease.MemorySize = c.vfio, c.lockedMemory, c.plan.Memory.Size
	if err := vmm.RefuseSave(c.vmm, c.spec); err != nil {
		c.lease.Unsaveable = err.Error()
	}
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
func runIDOf(vm *nodev1.VirtualMachine) string {
	return runID(vm.GetId(), vm.GetStatus().GetStartedAt().AsTime())
}

// descriptors numbers what goes with a plan: the taps, in the order of the
// networks, and then cloud-init's seed. -1: it has none.
func descriptors(s *specv1.VirtualMachineSpec) (taps []int, seed int) {
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
func (c *choice) describe(vm *nodev1.VirtualMachine) {
	vm.Status.EffectiveSpec = c.spec
	vm.Status.Hypervisor = c.spec.GetHypervisor()
	vm.Status.HypervisorReason, vm.Status.VmmReason = c.reason, c.vmmReason
	vm.Status.Vmm = &nodev1.Vmm{Name: c.info.Name, Version: c.info.Version, Binary: c.info.Binary, LazyRestore: c.info.LazyRestore}
	vm.Status.StartedAt = timestamppb.New(c.start)
}

// vsockFree refuses a context id that another running VM has: the kernel
// would, but late and without a name.
func (a *Manager) vsockFree(m *VM, cid uint32) error {
	if cid == 0 {
		return nil
	}
	for _, other := range a.All() {
		if other == m || other.running() == nil {
			continue
		}
		if other.snapshot().GetStatus().GetEffectiveSpec().GetDevices().GetVsock().GetCid() == cid {
			return fault.Errorf(codes.FailedPrecondition, "devices.vsock.cid: %d is that of vm %s, which runs", cid, other.name)
		}
	}
	return nil
}

// onlyOne refuses a second VM with the id of one that has a VMM, and with its addresses.
// VMs in pods are their own affair: what they say of their ids must keep no other from
// being started.
func (a *Manager) onlyOne(m *VM) error {
	if _, own := m.place.(OnNode); !own {
		return nil
	}
	id := m.snapshot().GetId()
	for _, other := range a.All() {
		if _, own := other.place.(OnNode); !own || other == m {
			continue
		}
		if vm := other.snapshot(); vm.GetId() == id && lifecycle.Live(vm.GetStatus().GetState()) {
			return fault.Errorf(codes.FailedPrecondition, "vm %s has the id %s, as has vm %s, which is %s: stop that first, or restore this one with --new-identity",
				m.name, id, other.name, lifecycle.Name(vm.GetStatus().GetState()))
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
