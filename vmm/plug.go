package vmm

import (
	"context"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
)

// Plugger is a VMM whose VMs take and give up devices while they run. Like
// Plan its methods touch nothing; what can't be is an error that names the field.
type Plugger interface {
	Planner
	// PlanAttach plans the device with that index in the request's specification,
	// which is the one that the VM is to have. A device without a slot is given one;
	// all others have theirs.
	PlanAttach(req PlugRequest) (*plan.Attachment, error)
	// PlanDetach plans the end of a device; the specification still has it.
	PlanDetach(req PlugRequest) (*plan.Detachment, error)
}

// PlugRequest is all that such a plan depends on.
type PlugRequest struct {
	// PlanRequest as at a launch, without an image. Taps and Seed are -1 but for the
	// tap of the device itself.
	PlanRequest
	// Manifest of the run: what its machine is made of was decided at its start.
	Manifest *memory.Manifest
	// Network: Index is in the networks; else in the disks.
	Network bool
	Index   int
}

// Resizer is a Monitor of a VM whose size can be changed while it runs.
type Resizer interface {
	// Size asks the VMM.
	Size(ctx context.Context) (Size, error)
	// SetVCPUs plugs vCPUs in, or asks the guest to let them go and waits for that
	// as long as the context allows; ErrGuestKeeps: it has not.
	SetVCPUs(ctx context.Context, vcpus int) error
	// SetMemory tells the balloon how many bytes the guest is to have. It does not
	// wait for the guest.
	SetMemory(ctx context.Context, bytes uint64) error
}

// Size is how large a VM is.
type Size struct {
	VCPUs int
	// Memory is what the guest has of it, in bytes; nil: there is no balloon.
	Memory *uint64
}
