package vmm

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Renewer is a Planner whose VMM can hand a guest that runs over to another process of its program, which may be of a later
// version: its driver's machines are a control.Sender and a control.Receiver.
type Renewer interface {
	// RefuseRenewal names each field that keeps a VM's VMM from being renewed, and why; none: it can be.
	RefuseRenewal(s *specv1.VirtualMachineSpec) spec.FieldErrors
}

// Renewable names all that keeps a VM's VMM from being renewed under its guest, by the specification's fields; none: it
// can be. A fault that is no field's is of the field "vmm".
func Renewable(p Planner, s *specv1.VirtualMachineSpec) (faults spec.FieldErrors) {
	r, can := p.(Renewer)
	if !can {
		faults.Add("vmm", "%s can't hand a guest over to another process: stop the VM and start it", p.Name())
		return faults
	}
	if len(s.GetHostDevices()) > 0 {
		faults.Add("hostDevices", "the state of devices of the host can't be handed over: stop the VM and start it")
	}
	return append(faults, r.RefuseRenewal(s)...)
}
