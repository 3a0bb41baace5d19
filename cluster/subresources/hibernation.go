package subresources

import (
	"slices"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// resumeChange says what starts a VM that is hibernated, or cancels a save that is under way: the
// run strategy that it had before.
func resumeChange(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, paused bool) change {
	to := strategyBefore(vm)
	c := change{spec: map[string]any{"runStrategy": to}, annotations: forgotten()}
	goesOn := vmi != nil && !ended(vmi)
	if !goesOn && (paused || to == kubevirtv1.RunStrategyManual) {
		// The request comes before the strategy that carries it out. Those of before mean
		// nothing any more.
		start := kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart}
		if paused {
			start.Data = map[string]string{"paused": "true"}
		}
		c.status = map[string]any{"stateChangeRequests": []kubevirtv1.StateChangeRequest{start}}
	}
	return c
}

// strategyBefore is the run strategy that a VM had before it was hibernated: as anyone who did that
// noted, or as the controller has seen it last; else Always. All of them run a VM.
func strategyBefore(vm *kubevirtv1.VirtualMachine) kubevirtv1.RunStrategy {
	for _, s := range []kubevirtv1.RunStrategy{kubevirtv1.RunStrategy(vm.Annotations[contract.AnnotationResumeStrategy]), vm.Status.RunStrategy} {
		if slices.Contains([]kubevirtv1.RunStrategy{
			kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyOnce,
		}, s) {
			return s
		}
	}
	return kubevirtv1.RunStrategyAlways
}

// forgotten takes the note away: it was of this hibernation.
func forgotten() map[string]any {
	return map[string]any{contract.AnnotationResumeStrategy: nil}
}

// notResumed: the VM is hibernated, and its last resume has failed.
func notResumed(vm *kubevirtv1.VirtualMachine) bool {
	r := vm.Status.ResumeStatus
	return vm.Status.HibernationStatus != nil && r != nil && r.Phase == kubevirtv1.ResumeFailed
}

// notRunning refuses to stop a VM.
func notRunning(vm *kubevirtv1.VirtualMachine) error {
	if h := vm.Status.HibernationStatus; h != nil && h.Phase == kubevirtv1.HibernationCompleted {
		return conflict(vm.Name, "VM is not running, but hibernated: set spec.startStrategy to Boot and start it to discard what was saved")
	}
	return conflict(vm.Name, "VM is not running")
}
