package hypervisor

import "context"

// Emulation is QEMU's TCG: the VMM translates the guest's instructions itself. It needs nothing of the kernel, so it always works;
// whether a given VMM has it is the VMM's to say.
type Emulation struct{}

var _ Hypervisor = Emulation{}

// Name returns "emulation".
func (Emulation) Name() string { return NameEmulation }

// Device returns "": emulation needs no device.
func (Emulation) Device() string { return "" }

// Accelerator returns "tcg".
func (Emulation) Accelerator() string { return "tcg" }

// VirtType returns "qemu".
func (Emulation) VirtType() string { return "qemu" }

// Check returns Works.
func (Emulation) Check(context.Context) Status { return Status{Level: Works} }
