package vmm

import (
	"cmp"
	"fmt"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// SaveRefuser is a VMM that can't save all machines that it runs.
type SaveRefuser interface {
	// RefuseSave names each field that keeps a VM from being saved, and what to do; none: it can be. A fault
	// that is no field's is of the field "vmm".
	RefuseSave(s *specv1.VirtualMachineSpec) spec.FieldErrors
}

// Saveable names all that keeps a VM from being saved, by the specification's fields; none: it can be. It decides
// for admission, which asks the planners, and for nodes, which ask the programs: these know what their version can't.
// What depends on more than the VM and its VMM (how a run was restored, where there is room) is the node's to add.
func Saveable(p Planner, s *specv1.VirtualMachineSpec) (faults spec.FieldErrors) {
	if len(s.GetHostDevices()) > 0 {
		faults.Add("hostDevices", "the state of devices of the host can't be saved: stop the VM instead")
	}
	faults = append(faults, shared(s)...)
	for i, n := range s.GetNetworks() {
		pod := n.GetPod()
		if pod.GetBinding() == spec.BindingBridge && cmp.Or(pod.GetInterface(), spec.DefaultPodInterface) == spec.DefaultPodInterface {
			faults.Add(fmt.Sprintf("networks[%d].pod.binding", i), "%s gives the guest its pod's address, which goes with the pod: use %s%s", spec.BindingBridge, spec.BindingMasquerade,
				contract.Reason(contract.FaultPodAddress))
		}
	}
	if r, refuses := p.(SaveRefuser); refuses {
		faults = append(faults, r.RefuseSave(s)...)
	}
	return faults
}

// Suspendable names what keeps a VM's guest from suspending itself to disk, as Saveable names what keeps the VM from being
// saved: its VMM, or another VM that has one of its disks.
func Suspendable(p Planner, s *specv1.VirtualMachineSpec) error {
	if err := shared(s).Err(); err != nil {
		return err
	}
	if suspender, is := p.(Suspender); is {
		return suspender.RefuseSuspend(s)
	}
	return Unsuspendable(p.Name())
}

// shared are a VM's disks that others may write to while its memory is kept.
func shared(s *specv1.VirtualMachineSpec) (faults spec.FieldErrors) {
	for i, d := range s.GetDisks() {
		if d.GetShareable() {
			faults.Add(fmt.Sprintf("disks[%d].shareable", i), "other VMs may write to the shareable disk %s meanwhile, and this one's memory would be of what was there before: stop the VM instead", d.GetName())
		}
	}
	return faults
}
