package vmm

import (
	"slices"

	"github.com/vmlet/vmlet/spec"
)

// Traits are what the machines of a VMM have and what they lack, for guests of one architecture. They are for programs that give
// guests what nobody asked for by name, as KubeVirt does: what the VMM lacks is then left out, not refused. What a guest asks for
// is the business of Validate, which agrees with them.
type Traits struct {
	// MachineTypes: machines are of types, and a specification may name one. Else there is one machine.
	MachineTypes bool
	// Disks are the buses that a disk may be on, by the specification's words.
	Disks []string
	// Video: guests may have a graphics device.
	Video bool
	// WithoutEntropy: guests may be without an entropy device. Else each has one.
	WithoutEntropy bool
	// SMBIOS: guests can read who made their machine, its product, family, version and SKU, and not only its UUID and serial
	// number.
	SMBIOS bool
}

// HasSATA reports whether a disk may be on SATA, where KubeVirt puts disks that name no bus.
func (t Traits) HasSATA() bool { return slices.Contains(t.Disks, spec.BusSATA) }
