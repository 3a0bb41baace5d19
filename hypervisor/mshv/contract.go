package mshv

import (
	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// maxVCPUs is MSHV_MAX_VPS (drivers/hv/mshv_root.h of Linux 6.15).
const maxVCPUs = 256

// Aliases are what KubeVirt and its proposal of an abstraction layer call it.
func (MSHV) Aliases() []string { return []string{"hyperv-direct", "hyperv-layered"} }

// Layers: the guest's CPU is the node's.
func (MSHV) Layers() spec.Layers {
	return spec.Layers{hypervisor.NameMSHV: {Cpu: &specv1.CPU{Model: "host"}}}
}

// Validate refuses what the kernel's driver has on no machine.
func (MSHV) Validate(s *specv1.VirtualMachineSpec, _ string) spec.FieldErrors {
	var faults spec.FieldErrors
	if n := spec.VCPULimit(s.GetCpu()); n > maxVCPUs {
		faults.Add("cpu", "%d vCPUs: MSHV has at most %d: want fewer, or hypervisor kvm", n, maxVCPUs)
	}
	return faults
}

// MemoryCosts are guessed to be KVM's: the hypervisor keeps second page tables in memory that the root partition gives it.
func (MSHV) MemoryCosts() hypervisor.MemoryCosts {
	return hypervisor.MemoryCosts{SecondTables: true, VM: 4 << 20, VCPU: 512 << 10}
}

// Threads are named by QEMU (accel/mshv) and cloud-hypervisor (vmm/src/cpu.rs).
func (MSHV) Threads() hypervisor.ThreadNames {
	return hypervisor.ThreadNames{VCPU: `^(?:CPU (\d+)/MSHV|vcpu(\d+))$`}
}
