// Package kvm says what the Linux kernel's hypervisor is on every node: its names, the devices that pods request, defaults,
// limits. It asks nothing of the machine it runs on; probe, below it, does.
package kvm

import (
	"slices"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// maxVCPUsARM64 is KVM_MAX_VCPUS there: VGIC_V3_MAX_CPUS, 512 (include/kvm/arm_vgic.h). On x86 the kernel's own limit is no lower
// than a specification's.
const maxVCPUsARM64 = 512

// KVM is the Linux kernel's hypervisor, behind /dev/kvm.
type KVM struct {
	hypervisor.Base
}

var _ hypervisor.Kind = KVM{}

// Name returns "kvm".
func (KVM) Name() string { return hypervisor.NameKVM }

// Accelerator returns "kvm".
func (KVM) Accelerator() string { return "kvm" }

// VirtType returns "kvm".
func (KVM) VirtType() string { return "kvm" }

// DeviceRequests are /dev/kvm, and what every VM can use.
func (k KVM) DeviceRequests() []hypervisor.DeviceRequest {
	own := []hypervisor.DeviceRequest{{Resource: contract.ResourceKVM, Path: "/dev/kvm"}}
	return append(own, k.Base.DeviceRequests()...)
}

// Layers: the guest's CPU is the node's.
func (KVM) Layers() spec.Layers {
	return spec.Layers{hypervisor.NameKVM: {Cpu: &specv1.CPU{Model: "host"}}}
}

// Validate refuses what KVM has on no machine of the architecture. What this machine's KVM can't do is found by trying.
func (KVM) Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors {
	var faults spec.FieldErrors
	if arch != spec.ArchARM64 {
		return nil
	}
	if n := spec.VCPULimit(s.GetCpu()); n > maxVCPUsARM64 {
		faults.Add("cpu", "%d vCPUs: KVM on arm64 has at most %d", n, maxVCPUsARM64)
	}
	// KVM on arm64 runs guests on the very CPU that the node has; the two named models are for nodes that have those
	// (kvm_target in QEMU's target/arm).
	if model := s.GetCpu().GetModel(); model != "" && !slices.Contains([]string{"host", "max", "cortex-a53", "cortex-a57"}, model) {
		faults.Add("cpu.model", "%.80q: KVM on arm64 can't show a guest another CPU than the node's: want host, or hypervisor emulation", model)
	}
	return faults
}

// MemoryCosts are the kernel's for a machine and its virtual CPUs, measured; see docs/overhead.md.
func (KVM) MemoryCosts() hypervisor.MemoryCosts {
	return hypervisor.MemoryCosts{Measured: true, SecondTables: true, VM: 1 << 20, VCPU: 384 << 10}
}

// Threads are named by QEMU (accel/kvm/kvm-accel-ops.c) and cloud-hypervisor (vmm/src/cpu.rs), the timer's by the kernel
// (arch/x86/kvm/i8254.c).
func (KVM) Threads() hypervisor.ThreadNames {
	return hypervisor.ThreadNames{VCPU: `^(?:CPU (\d+)/KVM|vcpu(\d+))$`, PIT: "kvm-pit/"}
}
