package server

import (
	"context"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/shim/internal/ram"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

const (
	fieldDedicated   = "cpu.dedicated"
	fieldPassthrough = "numa.guestMappingPassthrough"
)

// placeCPUs decides which CPUs the vCPUs have: before the guest's memory is allocated, part of which is to be
// near them.
func (l *launch) placeCPUs() error {
	d := l.vm.plan.Dedicated
	if d == nil {
		return nil
	}
	own, err := dedicated.Of(0)
	if err == nil {
		l.placed, err = dedicated.Place(dedicated.Wanted{VCPUs: d.VCPUs, Isolate: d.IsolateEmulatorThread}, own, dedicated.Where)
	}
	if err != nil {
		return fault.New(shim.CodeInvalid, fieldDedicated, "%v: in a pod that is what the kubelet's static CPU manager gives (cpuManagerPolicy: static): give the pod whole CPUs, or leave out dedicated CPUs", err)
	}
	return nil
}

// allocateNear has parts of RAM allocated next to the CPUs of their vCPUs. What is on other nodes keeps a
// guest from booting, and one that is restored goes on with it.
func (l *launch) allocateNear(ctx context.Context) error {
	m := l.vm.plan.Memory
	for _, part := range m.Near {
		if len(part.VCPUs) == 0 {
			continue
		}
		l.progress(shim.Progress{Step: "allocating huge pages", Done: part.Offset, Total: m.Size})
		if err := ram.AllocateNear(ctx, l.vm.ram, m, part, l.placed); err != nil {
			return fault.New(shim.CodeInvalid, fieldPassthrough, "%v", err)
		}
		why, err := ram.Elsewhere(l.vm.ram, m, part, l.placed)
		if err != nil {
			why = "the nodes of huge pages are unknown: " + err.Error()
		}
		switch {
		case why == "":
		case l.image == nil:
			return fault.New(shim.CodeInvalid, fieldPassthrough, "%s: let the kubelet give the pod CPUs and memory of the same nodes (memoryManagerPolicy: Static, topologyManagerPolicy), or leave it out", why)
		default:
			l.log.Warn("the guest's NUMA nodes are not the host's any more", "why", why)
		}
	}
	return nil
}

// dedicate moves the VMM's threads there.
func (l *launch) dedicate(ctx context.Context) error {
	if l.vm.plan.Dedicated == nil {
		return nil
	}
	machine, can := l.vm.machine().(control.VCPUThreader)
	if !can {
		return fault.New(shim.CodeInvalid, fieldDedicated, "%s's vCPUs can't have CPUs of their own", l.vm.plan.VMM)
	}
	threads, err := machine.VCPUThreads(ctx)
	if err != nil {
		return err
	}
	now := l.placed
	if len(threads) == 0 {
		now.VCPUs = nil
	}
	if err := dedicated.Pin(l.vm.proc().pid, threads, now); err != nil {
		return fault.New(shim.CodeInvalid, fieldDedicated, "%v", err)
	}
	l.log.Info("CPUs dedicated", "vcpus", l.placed.VCPUs, "others", l.placed.Others)
	return nil
}
