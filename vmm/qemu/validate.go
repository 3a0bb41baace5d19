package qemu

import (
	"fmt"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Validate finds what no QEMU has. The rest depends on the program and the machine type:
// its CPU models and devices.
func (QEMU) Validate(s *specv1.VirtualMachineSpec, arch string) (faults spec.FieldErrors) {
	if s.GetDevices().GetWatchdog().GetModel() == spec.WatchdogVirtio {
		faults = append(faults, spec.FieldError{Field: "devices.watchdog.model", Message: "QEMU has no watchdog of virtio: want i6300esb", UseVMM: spec.VMMCloudHypervisor})
	}
	validateDisks(s, &faults)
	validateFeatures(s, &faults)
	validateTimers(s.GetClock(), &faults)
	if arch != spec.ArchAMD64 {
		validateEnlightenments(s, arch, &faults)
	}
	return faults
}

const (
	// sataPorts is what an AHCI controller of QEMU's has.
	sataPorts = 6
	// maxSATA: the controllers share a slot, on pc all of them.
	maxSATA = sataPorts * functions
)

func validateDisks(s *specv1.VirtualMachineSpec, faults *spec.FieldErrors) {
	onSATA := 0
	for i, d := range s.GetDisks() {
		if d.GetBus() != spec.BusSATA {
			continue
		}
		if d.GetReadOnly() && d.GetType() != spec.DiskTypeCDROM {
			faults.Add(fmt.Sprintf("disks[%d].readOnly", i), "QEMU has no read-only SATA disk: want the bus virtio, scsi or usb")
		}
		if onSATA++; onSATA > maxSATA {
			faults.Add(fmt.Sprintf("disks[%d].bus", i), "it is SATA disk number %d, and there are %d ports: want the bus virtio, scsi or usb", onSATA, maxSATA)
		}
	}
}

func validateFeatures(s *specv1.VirtualMachineSpec, faults *spec.FieldErrors) {
	f := s.GetFeatures()
	if f == nil {
		return
	}
	if f.Apic != nil && !f.GetApic() {
		faults.Add("features.apic", "QEMU's machines can't be without: their virtio devices interrupt by messages: leave it out")
	}
	if !lacksACPI(f) {
		return
	}
	if s.GetBoot().GetFirmware() == spec.FirmwareUEFI && s.GetBoot().GetKernel() == nil {
		faults.Add("features.acpi", "UEFI needs it: leave it out, or use %s: bios", contract.FieldName("boot.firmware"))
	}
	if spec.VCPULimit(s.GetCpu()) > spec.VCPUs(s.GetCpu()) {
		faults.Add("features.acpi", "it is how a guest learns of vCPUs that are plugged in: leave it out, or leave out %s", contract.FieldName("cpu.maxVcpus"))
	}
}

func validateTimers(c *specv1.Clock, faults *spec.FieldErrors) {
	if t := c.GetRtc(); t != nil && t.Present != nil && !t.GetPresent() {
		faults.Add("clock.rtc.present", "QEMU's machines can't be without it: leave it out")
	}
	switch policy := c.GetHpet().GetTickPolicy(); policy {
	case "", spec.TickDelay:
	default:
		faults.Add("clock.hpet.tickPolicy", "%.40s: QEMU's delays what it can't deliver: want delay", policy)
	}
}

// validateEnlightenments refuses what only CPUs of amd64 show.
func validateEnlightenments(s *specv1.VirtualMachineSpec, arch string, faults *spec.FieldErrors) {
	f, c := s.GetFeatures(), s.GetClock()
	for _, asked := range []struct {
		field string
		is    bool
	}{
		{"features.kvmHidden", f.GetKvmHidden()},
		{"features.pvSpinlock", f.GetPvSpinlock()},
		{"features.hyperv", spec.AsksHyperV(f.GetHyperv())},
		{"clock.kvm.present", c.GetKvm().GetPresent()},
		{"clock.hyperv.present", c.GetHyperv().GetPresent()},
	} {
		if asked.is {
			faults.Add(asked.field, "only CPUs of amd64 have it, and this is %s: leave it out", arch)
		}
	}
}
