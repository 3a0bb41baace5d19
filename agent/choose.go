package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudinit"
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
	uid, err := l.agent.host.TakeUser(l.m.name)
	if err != nil {
		return failf(codes.ResourceExhausted, "%w", err)
	}
	if err := l.plan(&c, req, uid); err != nil {
		l.agent.host.ReleaseUser(uid, l.m.name)
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
	if c.vmm, err = a.node.vmm(l.spec.GetVmm()); err != nil {
		return req, err
	}
	if c.info, err = c.vmm.Info(ctx); err != nil {
		return req, failf(codes.FailedPrecondition, "VMM %s: %w", c.vmm.Name(), err)
	}
	h, reason, err := a.node.hypervisors.Choose(ctx, a.hypervisorFor(l.spec), func(h hypervisor.Hypervisor) error {
		return vmm.RunsUnder(c.info.Capabilities, h.Name())
	})
	if err != nil {
		return req, err
	}
	c.reason = reason
	c.spec = spec.Default(l.spec, spec.Target{ID: c.id, Hypervisor: h.Name(), VMM: c.vmm.Name(), Arch: a.arch}, a.layers)
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
		StateDir:         a.store.StateDir(l.m.name),
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

// plan fills in what depends on the user and has the VMM make the plan.
func (l *launch) plan(c *choice, req vmm.PlanRequest, uid uint32) (err error) {
	req.User = &plan.User{UID: uid, GID: uid}
	if req.MemoryPath, err = l.memoryPath(c); err != nil {
		return err
	}
	req.Taps = tapIndices(c.spec)
	if c.plan, err = c.vmm.Plan(req); err != nil {
		return err
	}
	c.lease = &lease{
		RunID:  runID(c.id, c.start),
		Start:  c.start,
		VMM:    c.vmm.Name(),
		UID:    uid,
		Cgroup: l.agent.host.PlanCgroup(l.m.name),
		Memory: c.plan.Memory.Path,
	}
	if req.HypervisorDevice != "" && !opens(c.plan, req.HypervisorDevice) {
		c.lease.Device = req.HypervisorDevice
	}
	if c.lease.Manifest, err = c.vmm.Manifest(req); err != nil {
		return err
	}
	return describeImage(&c.lease.Manifest, c)
}

func (l *launch) memoryPath(c *choice) (string, error) {
	var pageSize uint64
	if huge := c.spec.GetMemory().GetHugePages(); huge != nil {
		var err error
		if pageSize, err = spec.ParseQuantity(huge.GetPageSize()); err != nil {
			return "", invalid("memory.hugePages.pageSize", "%v", err)
		}
	}
	path, err := l.agent.host.MemoryPath(l.m.name, c.id, pageSize)
	if err != nil {
		return "", failf(codes.FailedPrecondition, "memory.hugePages: %w", err)
	}
	if room, size := l.agent.host.MemoryRoom(), c.plannedMemory(); pageSize == 0 && !l.lazy() && size > room {
		return "", invalid("memory.size", "%s is more than the %s of the tmpfs for guest RAM (ram.size of the agent's configuration)",
			spec.FormatQuantity(size), spec.FormatQuantity(room))
	}
	return path, nil
}

func (l *launch) lazy() bool { return l.image != nil && l.image.Lazy }

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

// tapIndices numbers the taps in the order in which openTaps opens them.
func tapIndices(s *vmletv1.VirtualMachineSpec) []int {
	indices := make([]int, len(s.GetNetworks()))
	next := 0
	for i, n := range s.GetNetworks() {
		indices[i] = -1
		if n.GetTap() != nil {
			indices[i] = next
			next++
		}
	}
	return indices
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

// writeFiles writes what the plan expects in the VM's state folder.
func (c *choice) writeFiles(stateDir string) error {
	seed, err := cloudinit.Seed(c.id, c.spec)
	if err != nil || seed == nil {
		return err
	}
	path := filepath.Join(stateDir, cloudinit.SeedName)
	// It can be made again any time: no need to wait for the disk.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, seed, 0o600)
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
