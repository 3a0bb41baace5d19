// Package sample is the hypervisor of docs/adding-a-hypervisor.md as a stub: a device node that does
// nothing, and emulation behind it. It is never part of vmlet: a test builds it in.
package sample

import (
	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Sample is a hypervisor behind /dev/sample.
type Sample struct {
	hypervisor.Base
}

// Name, Accelerator and VirtType: the VMM emulates.
func (Sample) Name() string        { return "sample" }
func (Sample) Accelerator() string { return "tcg" }
func (Sample) VirtType() string    { return "qemu" }

// DeviceRequests are its own device, a second one that VMs can do without, and what every VM can use.
func (s Sample) DeviceRequests() []hypervisor.DeviceRequest {
	own := []hypervisor.DeviceRequest{
		{Resource: "devices.kubevirt.io/sample", Path: "/dev/sample"},
		{Resource: "devices.kubevirt.io/sample-firmware", Path: "/dev/sample-firmware", Optional: true},
	}
	return append(own, s.Base.DeviceRequests()...)
}

// Layers are its defaults.
func (Sample) Layers() spec.Layers {
	return spec.Layers{"sample": {Cpu: &specv1.CPU{Model: "max"}}}
}

// Validate refuses huge pages of a guest, and Hyper-V's features.
func (Sample) Validate(s *specv1.VirtualMachineSpec, _ string) spec.FieldErrors {
	var faults spec.FieldErrors
	if s.GetFeatures().GetHyperv() != nil {
		faults.Add("features.hyperv", "sample has no enlightenments: want none, or hypervisor kvm")
	}
	return faults
}

// Threads are named by QEMU's emulation.
func (Sample) Threads() hypervisor.ThreadNames {
	return hypervisor.ThreadNames{VCPU: `^CPU (\d+)/TCG$`}
}

// MemoryCosts are emulation's.
func (Sample) MemoryCosts() hypervisor.MemoryCosts {
	return hypervisor.MemoryCosts{Code: 112 << 20, CodeLimit: 1 << 30, CodeVCPU: 4 << 20}
}
