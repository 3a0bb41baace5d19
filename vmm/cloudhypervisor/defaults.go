package cloudhypervisor

import (
	"google.golang.org/protobuf/proto"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm/spec"
)

// Defaults returns those of a specification's defaults that are other for this VMM
// than spec.BaseLayers has them. They come before all layers. Of machine types there
// is none, and so no default.
func Defaults() *vmletv1.VirtualMachineSpec {
	return &vmletv1.VirtualMachineSpec{
		Boot:    &vmletv1.Boot{Firmware: spec.FirmwareUEFI},
		Devices: &vmletv1.Devices{GuestAgent: proto.Bool(false)},
	}
}
