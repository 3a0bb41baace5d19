// Package mshv says what the Microsoft Hypervisor is on every node: its names, the devices that pods request, defaults, limits.
// It asks nothing of the machine it runs on; probe, below it, does.
package mshv

import (
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// maxVCPUs is MSHV_MAX_VPS (drivers/hv/mshv_root.h of Linux 6.15).
const maxVCPUs = 256

// MSHV is the Microsoft Hypervisor, driven from a root partition through /dev/mshv (Linux 6.15 and later).
type MSHV struct {
	hypervisor.Base
}

var _ hypervisor.Kind = MSHV{}

// Name returns "mshv".
func (MSHV) Name() string { return hypervisor.NameMSHV }

// Accelerator returns "mshv", which QEMU has from 10.2.
func (MSHV) Accelerator() string { return "mshv" }

// VirtType returns "hyperv".
func (MSHV) VirtType() string { return "hyperv" }

// DeviceRequests are /dev/mshv, and what every VM can use.
func (m MSHV) DeviceRequests() []hypervisor.DeviceRequest {
	own := []hypervisor.DeviceRequest{{Resource: contract.ResourceMSHV, Path: "/dev/mshv"}}
	return append(own, m.Base.DeviceRequests()...)
}

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
