package vmm

import (
	"errors"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
)

// beside is what a VMM locks beside the guest's memory when it hands devices over,
// in bytes: their registers, mapped for other devices to reach. It is libvirt's
// figure (qemuDomainGetMemLockLimitBytes).
const beside = 1 << 30

// LockedMemory is how many bytes a VMM must be able to lock for a machine with that
// much memory: a device of the host may reach any page at any time. 0: it has none.
func LockedMemory(s *vmletv1.VirtualMachineSpec, memory uint64) uint64 {
	if len(s.GetHostDevices()) == 0 {
		return 0
	}
	return memory + beside
}

// SaveRefuser is a VMM that can't save all machines that it runs.
type SaveRefuser interface {
	// RefuseSave says why not; nil: it can. The error names the field.
	RefuseSave(s *vmletv1.VirtualMachineSpec) error
}

// RefuseSave says why a VMM can't save a machine; nil: it can. Devices of the host
// keep their state to themselves whatever the VMM.
func RefuseSave(v VMM, s *vmletv1.VirtualMachineSpec) error {
	if len(s.GetHostDevices()) > 0 {
		return errors.New("hostDevices: the state of devices of the host can't be saved: stop the VM instead")
	}
	if r, refuses := v.(SaveRefuser); refuses {
		return r.RefuseSave(s)
	}
	return nil
}
