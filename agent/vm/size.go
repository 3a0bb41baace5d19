package vm

import (
	"context"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// keep changes the specification, as the user has it and as it runs.
func keep(m *VM, change func(own, complete *specv1.VirtualMachineSpec)) error {
	if err := m.Change(func(vm *nodev1.VirtualMachine) { change(vm.Spec, vm.Status.EffectiveSpec) }); err != nil {
		return err
	}
	return m.persist()
}

// keepSockets keeps how many there are; the room for more is a part of the machine since its start.
func keepSockets(m *VM, sockets uint32) error {
	return keep(m, func(own, complete *specv1.VirtualMachineSpec) {
		most := uint32(spec.VCPULimit(complete.GetCpu()))
		for _, s := range []*specv1.VirtualMachineSpec{own, complete} {
			s.Cpu = orNew(s.Cpu)
			s.Cpu.Sockets, s.Cpu.MaxVcpus = sockets, most
		}
	})
}

// orNew is the message, or an empty one.
func orNew[M any](m *M) *M {
	if m == nil {
		return new(M)
	}
	return m
}

// matchSize has the record and a VMM that runs agree after an agent was lost between
// one and the other: the vCPUs are those that the VMM has, the balloon's target is what
// the record says.
func matchSize(ctx context.Context, m *VM, monitor vmm.Monitor) {
	if resizer, can := monitor.(vmm.Resizer); can && m.Snapshot().GetStatus().GetEffectiveSpec() != nil {
		matchVCPUs(ctx, m, resizer)
		inflate(ctx, m, monitor)
	}
}

// inflate tells the balloon what the guest is to have, if that isn't all.
func inflate(ctx context.Context, m *VM, monitor vmm.Monitor) {
	s := m.Snapshot().GetStatus().GetEffectiveSpec()
	resizer, can := monitor.(vmm.Resizer)
	if s.GetMemory().GetTarget() == "" || !s.GetDevices().GetBalloon() || !can {
		return
	}
	target, err := spec.ParseQuantity(s.GetMemory().GetTarget())
	if err == nil {
		err = resizer.SetMemory(ctx, target)
	}
	if err != nil {
		m.log.Warn("failed to set the balloon to the memory that the guest is to have", "error", err)
	}
}

// matchVCPUs notes how many there are.
func matchVCPUs(ctx context.Context, m *VM, r vmm.Resizer) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	size, err := r.Size(ctx)
	if err != nil {
		m.log.Warn("failed to ask the VMM for the VM's size", "error", err)
		return
	}
	now := m.Snapshot().GetStatus().GetEffectiveSpec().GetCpu()
	socket := max(now.GetCores(), 1) * max(now.GetThreads(), 1)
	if size.VCPUs <= 0 || uint64(size.VCPUs) == spec.VCPUs(now) || uint64(size.VCPUs) > spec.MaxVCPUs {
		return
	}
	if uint32(size.VCPUs)%socket != 0 {
		m.log.Warn("the VM has vCPUs of half a socket until it is resized again", "vcpus", size.VCPUs)
		return
	}
	if err := keepSockets(m, uint32(size.VCPUs)/socket); err != nil {
		m.log.Error("failed to write the VM's record", "error", err)
	}
}
