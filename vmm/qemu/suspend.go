package qemu

import (
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// RefuseSuspend refuses guests that have no ACPI S4: by its event QEMU tells that a guest has
// suspended itself, and has not shut down. q35 and pc have it unless configured otherwise
// (disable_s4 of ICH9-LPC and PIIX4_PM), which plans don't.
func (QEMU) RefuseSuspend(s *specv1.VirtualMachineSpec) error {
	const save, reason = contract.Advice("or save the VM instead"), contract.Reason(contract.FaultSaveInstead)
	var faults spec.FieldErrors
	switch f := familyOf(s.GetMachineType()); {
	case f != familyQ35 && f != familyPC:
		faults.Add("machineType", "%s offers its guest no suspend to disk (ACPI S4): use q35%s%s", s.GetMachineType(), save, reason)
	case s.GetFeatures() != nil && s.GetFeatures().Acpi != nil && !s.GetFeatures().GetAcpi():
		faults.Add("features.acpi", "without it the guest has no suspend to disk (ACPI S4): leave it out%s%s", save, reason)
	case !s.GetDevices().GetGuestAgent():
		faults.Add("devices.guestAgent", "the guest's agent suspends it to disk, and has no channel: leave it out%s%s", save, reason)
	}
	return faults.Err()
}
