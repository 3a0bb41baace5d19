package qemu

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
	"google.golang.org/protobuf/proto"
)

// QEMU is what can be known of QEMU without its program: its defaults, its limits, and
// how VMs are planned for what a program said of itself.
type QEMU struct{}

// Name returns "qemu".
func (QEMU) Name() string { return wire.Name }

var _ interface {
	vmm.Defaulter
	vmm.Validator
	vmm.MemoryCoster
	vmm.ProgramNamer
} = QEMU{}

// Defaults returns what a specification has with QEMU where it says nothing else.
func (QEMU) Defaults(arch string) spec.VMMDefaults {
	d := spec.VMMDefaults{
		Layer: &specv1.VirtualMachineSpec{
			MachineType: "q35",
			Boot:        &specv1.Boot{Firmware: spec.FirmwareBIOS},
			Devices:     &specv1.Devices{GuestAgent: proto.Bool(true)},
		},
		Watchdog:    spec.WatchdogI6300ESB,
		TPM:         spec.TPMCRB,
		CDROMBus:    spec.BusSATA,
		UserNetwork: true,
	}
	if arch == spec.ArchARM64 {
		d.Layer.MachineType, d.Layer.Boot.Firmware = "virt", spec.FirmwareUEFI
		d.CDROMBus, d.TPM = spec.BusSCSI, spec.TPMTIS // virt has neither SATA nor a CRB
	}
	return d
}

// Validate finds what no QEMU has. The rest hangs on the program: its machine
// types, CPU models and devices.
func (QEMU) Validate(s *specv1.VirtualMachineSpec, _ string) (faults spec.FieldErrors) {
	if s.GetDevices().GetWatchdog().GetModel() == spec.WatchdogVirtio {
		faults.Add("devices.watchdog.model", "QEMU has no watchdog of virtio: want i6300esb, or use vmm: cloud-hypervisor")
	}
	return faults
}

// MemoryCosts are fitted to docs/overhead.md, with a margin of about a quarter for other
// guests, versions and builds.
func (QEMU) MemoryCosts() vmm.MemoryCosts {
	const mib = 1 << 20
	return vmm.MemoryCosts{Measured: true, Base: 44 * mib, VCPU: mib / 8, Disk: mib, Network: mib, Device: mib / 2}
}

// ProgramNames are those that distributions give it.
func (QEMU) ProgramNames() []string { return []string{"qemu-system-*", "qemu-kvm"} }
