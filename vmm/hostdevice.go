package vmm

import (
	"errors"
	"fmt"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// SaveRefuser is a VMM that can't save all machines that it runs.
type SaveRefuser interface {
	// RefuseSave says why not; nil: it can. The error names the field.
	RefuseSave(s *specv1.VirtualMachineSpec) error
}

// RefuseSave says why a VMM can't save a VM; nil: it can. Devices of the host
// keep their state to themselves, and disks that others write to change, whatever the VMM.
func RefuseSave(v VMM, s *specv1.VirtualMachineSpec) error {
	if len(s.GetHostDevices()) > 0 {
		return errors.New("hostDevices: the state of devices of the host can't be saved: stop the VM instead")
	}
	if err := refuseShared(s); err != nil {
		return err
	}
	if r, refuses := v.(SaveRefuser); refuses {
		return r.RefuseSave(s)
	}
	return nil
}

// refuseShared refuses a VM with a disk that others write to while its memory is kept.
func refuseShared(s *specv1.VirtualMachineSpec) error {
	for i, d := range s.GetDisks() {
		if d.GetShareable() {
			return fmt.Errorf("disks[%d].shareable: other VMs may write to disk %s meanwhile, and this one's memory would be of what was there before: stop the VM instead", i, d.GetName())
		}
	}
	return nil
}
