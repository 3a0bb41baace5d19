package podvm

import (
	"errors"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// lastWords returns what a pod's container ends with when its VM did not come up. If the agent finds that an image
// can't be restored, it has one of contract's reasons, by which the controller decides whether to try again. The
// shim adds the reason to what it finds itself.
func lastWords(why error) contract.Ending {
	return contract.Ending{Reason: restoreReason(why), Message: fault.Clip(why.Error(), fault.MaxMessage), Faults: contract.FaultsOf(why)}
}

// restoreReason is one of contract's, empty for what is wrong with no image or was found by the
// shim.
func restoreReason(why error) string {
	var (
		unfit   *vm.UnfitError
		damaged *memory.DamagedError
		format  *memory.FormatError
	)
	if errors.As(why, new(*shim.Error)) {
		return ""
	}
	switch {
	case errors.As(why, &unfit), errors.Is(why, memory.ErrNewerFormat):
		return contract.RestoreImageUnfit
	case errors.Is(why, memory.ErrNotImage):
		return contract.RestoreImageMissing
	case errors.As(why, &damaged), errors.As(why, &format), fault.Code(why) == codes.DataLoss:
		return contract.RestoreImageDamaged
	}
	return ""
}
