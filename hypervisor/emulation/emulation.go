// Package emulation is a VMM without a hypervisor: QEMU's TCG.
package emulation

import (
	"context"

	"github.com/vmlet/vmlet/hypervisor"
)

// Emulation is QEMU's TCG: the VMM translates the guest's instructions itself. It needs nothing of the kernel, so it always works;
// whether a given VMM has it is the VMM's to say.
type Emulation struct{}

var _ hypervisor.Hypervisor = Emulation{}

// Name returns "emulation".
func (Emulation) Name() string { return hypervisor.NameEmulation }

// Device returns "": emulation needs no device.
func (Emulation) Device() string { return "" }

// Accelerator returns "tcg".
func (Emulation) Accelerator() string { return "tcg" }

// VirtType returns "qemu".
func (Emulation) VirtType() string { return "qemu" }

// Check returns Works.
func (Emulation) Check(context.Context) hypervisor.Status {
	return hypervisor.Status{Level: hypervisor.Works}
}

// DeviceRequests is what a tap needs; emulation itself needs nothing.
func (Emulation) DeviceRequests() []hypervisor.DeviceRequest {
	return []hypervisor.DeviceRequest{{Resource: "devices.kubevirt.io/tun", Path: "/dev/net/tun", Optional: true}}
}
