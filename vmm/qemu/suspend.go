package qemu

import (
	"fmt"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// RefuseSuspend refuses guests that have no ACPI S4: by its event QEMU tells that a guest has
// suspended itself, and has not shut down. q35 and pc have it unless configured otherwise
// (disable_s4 of ICH9-LPC and PIIX4_PM), which plans don't.
func (QEMU) RefuseSuspend(s *specv1.VirtualMachineSpec) error {
	switch f := familyOf(s.GetMachineType()); {
	case f != familyQ35 && f != familyPC:
		return fmt.Errorf("machineType: %s offers its guest no suspend to disk (ACPI S4): use q35, or save the VM instead", s.GetMachineType())
	case s.GetFeatures() != nil && s.GetFeatures().Acpi != nil && !s.GetFeatures().GetAcpi():
		return fmt.Errorf("features.acpi: without it the guest has no suspend to disk (ACPI S4): leave it out, or save the VM instead")
	case !s.GetDevices().GetGuestAgent():
		return fmt.Errorf("devices.guestAgent: the guest's agent suspends it to disk, and has no channel: leave it out, or save the VM instead")
	}
	return nil
}
