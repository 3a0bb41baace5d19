package qemu

import (
	"fmt"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

var _ vmm.Renewer = QEMU{}

// RefuseRenewal refuses what one QEMU alone can have, as long as it runs.
func (QEMU) RefuseRenewal(s *specv1.VirtualMachineSpec) (faults spec.FieldErrors) {
	if s.GetDevices().GetVsock() != nil {
		// The kernel lets one process at a time have a context id (VHOST_VSOCK_SET_GUEST_CID in its drivers/vhost/vsock.c),
		// which QEMU takes as it starts.
		faults.Add("devices.vsock", "two QEMUs can't have the guest's context id at a time")
	}
	for i, n := range s.GetNetworks() {
		if len(n.GetUser().GetPorts()) > 0 {
			faults.Add(fmt.Sprintf("networks[%d].user.ports", i), "two QEMUs can't listen at the same ports of the host at a time")
		}
	}
	if s.GetDevices().GetTpm() != nil {
		faults.Add("devices.tpm", "the TPM's emulator serves one QEMU, and its state is not handed over")
	}
	return faults
}
