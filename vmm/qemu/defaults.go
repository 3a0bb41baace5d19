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
	vmm.SaveRefuser
	vmm.Suspender
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
		Disk:        diskDefaults(),
	}
	if arch == spec.ArchARM64 {
		d.Layer.MachineType, d.Layer.Boot.Firmware = "virt", spec.FirmwareUEFI
		d.CDROMBus, d.TPM = spec.BusSCSI, spec.TPMTIS // virt has neither SATA nor a CRB
	}
	return d
}

// Traits: it has everything; SATA only on machines for amd64, as virt has none.
func (QEMU) Traits(arch string) vmm.Traits {
	t := vmm.Traits{
		MachineTypes:   true,
		Disks:          []string{spec.BusVirtio, spec.BusSCSI, spec.BusUSB},
		Video:          true,
		WithoutEntropy: true,
		SMBIOS:         true,
	}
	if arch == spec.ArchAMD64 {
		t.Disks = append(t.Disks, spec.BusSATA)
	}
	return t
}

// MemoryCosts are fitted to docs/overhead.md, with a margin of about a quarter for other
// guests, versions and builds. A display takes what a guest draws on: 16 MiB of its own
// (vgamem_mb in hw/display), and what shows it; a VNC client a copy of 1920 × 1080, and its
// buffers.
func (QEMU) MemoryCosts() vmm.MemoryCosts {
	const mib = 1 << 20
	return vmm.MemoryCosts{Measured: true, Base: 44 * mib, VCPU: mib / 8, Disk: mib, Network: mib, Device: mib / 2, Video: 20 * mib, USB: 4 * mib, Display: 12 * mib}
}

// ProgramNames are those that distributions give it.
func (QEMU) ProgramNames() []string { return []string{"qemu-system-*", "qemu-kvm"} }
