package wire

import "github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"

// Attach is how a VM that runs is given one more device, the Instructions of a
// plan.Attachment: one of the two.
type Attach struct {
	// Disk has the path by which the VMM opens it (vm.add-disk), as no descriptor can
	// be handed over for it. The attachment's files are those that it must then have
	// opened: the disk first, and its backing files.
	Disk *chapi.Disk `json:"disk,omitempty"`
	// Net goes with its tap (vm.add-net); Tap is its number among the
	// attachment's files.
	Net *AddNet `json:"net,omitempty"`
}

// Detach is how it is taken away (vm.remove-device), the Instructions of a
// plan.Detachment.
type Detach struct {
	Device string `json:"device"`
}
