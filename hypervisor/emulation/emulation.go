// Package emulation is a VMM without a hypervisor: QEMU's TCG. As it needs nothing of a node, it has no probe below it: what
// holds everywhere holds here.
package emulation

import (
	"context"

	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Emulation is QEMU's TCG: the VMM translates the guest's instructions itself. It needs nothing of the kernel, so it always works;
// whether a given VMM has it is the VMM's to say.
type Emulation struct {
	hypervisor.Base
}

var _ hypervisor.Hypervisor = Emulation{}

// Name returns "emulation".
func (Emulation) Name() string { return hypervisor.NameEmulation }

// Accelerator returns "tcg".
func (Emulation) Accelerator() string { return "tcg" }

// VirtType returns "qemu".
func (Emulation) VirtType() string { return "qemu" }

// Device returns "": it needs none.
func (Emulation) Device() string { return "" }

// DependsOn returns the zero Dependencies.
func (Emulation) DependsOn() hypervisor.Dependencies { return hypervisor.Dependencies{} }

// Check returns Works.
func (Emulation) Check(context.Context) hypervisor.Status {
	return hypervisor.Status{Level: hypervisor.Works}
}

// Layers: the CPU has all that QEMU can emulate.
func (Emulation) Layers() spec.Layers {
	return spec.Layers{hypervisor.NameEmulation: {Cpu: &specv1.CPU{Model: "max"}}}
}

// Validate refuses what needs a processor that runs the guest itself.
func (Emulation) Validate(s *specv1.VirtualMachineSpec, _ string) spec.FieldErrors {
	var faults spec.FieldErrors
	if s.GetCpu().GetModel() == "host" {
		faults.Add("cpu.model", "host needs a hypervisor, and this VM runs under emulation: want max or a named model")
	}
	return faults
}

// MemoryCosts are those of QEMU's translations. What a Linux that has booted keeps in use was measured, see docs/overhead.md; the
// limit is the size of QEMU's buffer, which it fills before it throws anything away: 1 GiB, or an eighth of the machine's memory if
// that is less (tcg/region.c; -accel tcg,tb-size= would set another).
func (Emulation) MemoryCosts() hypervisor.MemoryCosts {
	return hypervisor.MemoryCosts{Measured: true, Code: 112 << 20, CodeLimit: 1 << 30, CodeVCPU: 4 << 20}
}

// Threads are named by QEMU's TCG (accel/tcg/tcg-accel-ops-mttcg.c), one for each virtual CPU.
func (Emulation) Threads() hypervisor.ThreadNames {
	return hypervisor.ThreadNames{VCPU: `^CPU (\d+)/TCG$`}
}
