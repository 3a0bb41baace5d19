package vm

import (
	"context"
	"errors"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

const (
	// vcpuPatience is how long a guest may take to let vCPUs go.
	vcpuPatience = 30 * time.Second
	// balloonPatience is how long a guest is given to follow its balloon before the
	// caller learns how far it has come, and balloonPace how often it is looked at.
	balloonPatience = 3 * time.Second
	balloonPace     = 50 * time.Millisecond
)

// resizing is a change of a VM's size.
type resizing struct {
	*Hotplug
	m *VM
	// vcpus and memory, in bytes, that are wanted; 0: as now.
	vcpus  uint32
	memory uint64
}

// Resize changes how many vCPUs a VM has and how much memory. It also returns what the
// guest has of that, in bytes, where the VMM says.
func (h *Hotplug) Resize(ctx context.Context, r *nodev1.ResizeVMRequest) (*nodev1.VirtualMachine, *uint64, error) {
	z := &resizing{Hotplug: h, vcpus: r.GetVcpus()}
	if err := z.read(r); err != nil {
		return nil, nil, err
	}
	m, done, err := h.vms.take(ctx, r.GetName(), lifecycle.Resize)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	z.m = m
	var has *uint64
	if lifecycle.Live(z.m.State()) {
		has, err = z.live(ctx)
	} else {
		err = z.stopped(ctx)
	}
	if err != nil {
		return nil, nil, contract.Errorf("resizing %s: %w", contract.ThisVM(r.GetName()), err)
	}
	return z.m.Snapshot(), has, nil
}

func (z *resizing) read(r *nodev1.ResizeVMRequest) error {
	if r.GetVcpus() == 0 && r.GetMemory() == "" {
		return fault.Invalid("vcpus", "neither vcpus nor memory is there: want one of them at least")
	}
	if r.GetMemory() == "" {
		return nil
	}
	var err error
	if z.memory, err = spec.ParseQuantity(r.GetMemory()); err != nil {
		return fault.Invalid("memory", "%v", err)
	}
	if z.memory < spec.MinMemory || z.memory%spec.MinMemory != 0 {
		return fault.Invalid("memory", "%s is no multiple of %s", r.GetMemory(), spec.FormatQuantity(spec.MinMemory))
	}
	return nil
}

// stopped changes what the VM will be started with.
func (z *resizing) stopped(ctx context.Context) error {
	if z.m.container != nil {
		return fault.Errorf(codes.FailedPrecondition, "it is its pod's, and does not run: a new pod starts it, with the size that it is given there")
	}
	own := proto.CloneOf(z.m.Snapshot().GetSpec())
	complete := z.platform.completed(z.m.Snapshot())
	if z.vcpus != 0 {
		sockets, err := z.sockets(complete)
		if err != nil {
			return err
		}
		own.Cpu = orNew(own.Cpu)
		own.Cpu.Sockets = sockets
		if most := own.Cpu.GetMaxVcpus(); most != 0 && most < z.vcpus {
			own.Cpu.MaxVcpus = z.vcpus
		}
	}
	if z.memory != 0 {
		own.Memory = orNew(own.Memory)
		own.Memory.Size, own.Memory.Target = spec.FormatQuantity(z.memory), ""
	}
	if err := z.platform.Validate(ctx, own, z.m.place.VMM); err != nil {
		return err
	}
	if err := z.m.Change(func(vm *nodev1.VirtualMachine) { vm.Spec = own }); err != nil {
		return err
	}
	return z.m.persist()
}

// sockets that the wanted vCPUs fill: they come and go a socket at a time, as the
// specification has sockets × cores × threads of them.
func (z *resizing) sockets(s *specv1.VirtualMachineSpec) (uint32, error) {
	socket := max(s.GetCpu().GetCores(), 1) * max(s.GetCpu().GetThreads(), 1)
	if z.vcpus%socket != 0 {
		return 0, fault.Invalid("vcpus", "%d: they come and go a socket at a time, and this VM's have %d each (%s × %s): want a multiple of that, or start the VM with sockets of one core",
			z.vcpus, socket, contract.FieldName("cpu.cores"), contract.FieldName("cpu.threads"))
	}
	return z.vcpus / socket, nil
}

// live changes a VM that runs.
func (z *resizing) live(ctx context.Context) (*uint64, error) {
	l := z.m.running()
	if l == nil {
		return nil, endedMeanwhile(z.m)
	}
	monitor, err := l.connected()
	if err != nil {
		return nil, err
	}
	resizer, can := monitor.(vmm.Resizer)
	if !can {
		return nil, fault.InField(codes.FailedPrecondition, "vmm", "the size of a VM can't be changed while %s runs: stop the VM, resize it and start it again", l.lease.VMM)
	}
	// All is looked at before anything is done.
	sockets, err := z.checkVCPUs()
	if err == nil {
		err = z.checkMemory()
	}
	if err != nil {
		return nil, err
	}
	if z.vcpus != 0 {
		if err := z.setVCPUs(ctx, resizer, sockets); err != nil {
			return nil, err
		}
	}
	if z.memory != 0 {
		if err := z.setMemory(ctx, resizer); err != nil {
			return nil, err
		}
	}
	return z.has(ctx, resizer), nil
}

func (z *resizing) running() *specv1.VirtualMachineSpec {
	return z.m.Snapshot().GetStatus().GetEffectiveSpec()
}

func (z *resizing) checkVCPUs() (sockets uint32, err error) {
	if z.vcpus == 0 {
		return 0, nil
	}
	now := z.running().GetCpu()
	if sockets, err = z.sockets(z.running()); err != nil {
		return 0, err
	}
	if most := spec.VCPULimit(now); uint64(z.vcpus) > most {
		return 0, fault.Invalid("cpu.maxVcpus", "the VM was started with room for %d vCPUs, and %d are wanted: stop it, raise %s and start it again",
			most, z.vcpus, contract.FieldName("cpu.maxVcpus"))
	}
	if z.m.State() == lifecycle.Paused && uint64(z.vcpus) < spec.VCPUs(now) {
		return 0, fault.Errorf(codes.FailedPrecondition, "vcpus: a guest that is paused can't let vCPUs go: resume it first")
	}
	return sockets, nil
}

func (z *resizing) checkMemory() error {
	if z.memory == 0 {
		return nil
	}
	s := z.running()
	size, err := spec.ParseQuantity(s.GetMemory().GetSize())
	switch {
	case err != nil:
		return fault.Invalid("memory.size", "%v", err)
	case z.memory > size:
		return fault.Invalid("memory.size", "the VM was started with %s, and %s are wanted: stop it, resize it and start it again", s.GetMemory().GetSize(), spec.FormatQuantity(z.memory))
	case !s.GetDevices().GetBalloon():
		return fault.Invalid("devices.balloon", "the VM has none, by which alone its memory changes while it runs: stop it, set %s (which does not go with huge pages) or resize it, and start it again",
			contract.FieldName("devices.balloon"))
	}
	return nil
}

func (z *resizing) setVCPUs(ctx context.Context, r vmm.Resizer, sockets uint32) error {
	bounded, cancel := context.WithTimeout(ctx, vcpuPatience)
	defer cancel()
	err := r.SetVCPUs(bounded, int(z.vcpus))
	faultpoint.Reach("agent.resize.plugged")
	if err == nil {
		return keepSockets(z.m, sockets)
	}
	matchVCPUs(context.WithoutCancel(ctx), z.m, r) // some may have come or gone
	if errors.Is(err, vmm.ErrGuestKeeps) {
		return fault.Errorf(codes.DeadlineExceeded, "vcpus: %w: it may still let them go; has it a driver for that?", err)
	}
	return fault.Errorf(codes.Unavailable, "vcpus: %w", err)
}

// setMemory keeps the target first, so that an agent which is lost in between sets it.
func (z *resizing) setMemory(ctx context.Context, r vmm.Resizer) error {
	before := z.running().GetMemory().GetTarget()
	ownBefore := z.m.Snapshot().GetSpec().GetMemory().GetTarget()
	size, _ := spec.ParseQuantity(z.running().GetMemory().GetSize()) // it is valid
	target := spec.FormatQuantity(z.memory)
	if z.memory == size {
		target = ""
	}
	set := func(ownTarget, target string) func(own, complete *specv1.VirtualMachineSpec) {
		return func(own, complete *specv1.VirtualMachineSpec) {
			own.Memory, complete.Memory = orNew(own.Memory), orNew(complete.Memory)
			own.Memory.Target, complete.Memory.Target = ownTarget, target
		}
	}
	if err := keep(z.m, set(target, target)); err != nil {
		return err
	}
	faultpoint.Reach("agent.resize.aimed")
	if err := r.SetMemory(ctx, z.memory); err != nil {
		return errors.Join(fault.InField(codes.Unavailable, "memory", "%w", err), keep(z.m, set(ownBefore, before)))
	}
	return nil
}

// has waits a little for the guest to follow its balloon, and returns what it has.
func (z *resizing) has(ctx context.Context, r vmm.Resizer) *uint64 {
	ctx, cancel := context.WithTimeout(ctx, balloonPatience)
	defer cancel()
	pace := time.NewTicker(balloonPace)
	defer pace.Stop()
	var last *uint64
	for {
		if size, err := r.Size(ctx); err == nil {
			last = size.Memory
		}
		if z.memory == 0 || last == nil || *last == z.memory || z.m.State() == lifecycle.Paused {
			return last
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return last
		}
	}
}
