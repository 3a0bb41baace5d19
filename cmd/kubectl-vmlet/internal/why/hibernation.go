package why

import (
	"fmt"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// hibernationFacts say how far a VM's hibernation and resume are.
func hibernationFacts(o *Objects) (all [][2]string) {
	if o.VM == nil {
		return nil
	}
	if h := o.VM.Status.HibernationStatus; h != nil {
		words := h.Phase
		if h.ClaimName != "" {
			words += ", claim " + h.ClaimName
		}
		if h.Image != nil && h.Image.SizeBytes > 0 {
			words += fmt.Sprintf(", %d MiB", (h.Image.SizeBytes+(1<<20)-1)>>20)
		}
		if h.Evacuation {
			words += ", to leave its node"
		}
		all = append(all, [2]string{"hibernation", words})
	}
	if r := o.VM.Status.ResumeStatus; r != nil && r.Phase != kubevirtv1.ResumeCleaned {
		all = append(all, [2]string{"resume", r.Phase})
	}
	return all
}

// waits: the VM is hibernated, and no resume has been requested.
func waits(vm *kubevirtv1.VirtualMachine) bool {
	h := vm.Status.HibernationStatus
	if h == nil || h.Phase != kubevirtv1.HibernationCompleted || h.Evacuation {
		return false
	}
	switch strategy(vm) {
	case kubevirtv1.RunStrategyHibernate, kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyManual:
		return vm.Status.ResumeStatus == nil || vm.Status.ResumeStatus.Phase == kubevirtv1.ResumeCleaned
	}
	return false
}

func asleep(vm *kubevirtv1.VirtualMachine) Finding {
	h := vm.Status.HibernationStatus
	f := Finding{Of: "VM " + vm.Name, Reason: "Hibernated", Message: "the guest has suspended itself to its disk", Do: "kubectl vmlet resume " + vm.Name + " -n " + vm.Namespace}
	if h.CompletionTimestamp != nil {
		f.Since = h.CompletionTimestamp.Time
	}
	if h.Image != nil {
		f.Message = fmt.Sprintf("its memory is saved in claim %s, and no resume has been requested", h.Image.ClaimName)
	}
	return f
}

// fromHibernation are attempts to save or resume a VM that have failed.
func fromHibernation(o *Objects) (all []Finding) {
	if o.VM == nil {
		return nil
	}
	if h := o.VM.Status.HibernationStatus; h != nil && h.Phase == kubevirtv1.HibernationFailed {
		f := Finding{Of: "VM " + o.VM.Name, Reason: h.Reason, Message: h.Message + again(h), Do: advice(h.Reason)}
		if h.CompletionTimestamp != nil {
			f.Since = h.CompletionTimestamp.Time
		}
		all = append(all, f)
	}
	if r := o.VM.Status.ResumeStatus; r != nil && r.Phase == kubevirtv1.ResumeFailed {
		all = append(all, Finding{Of: "VM " + o.VM.Name, Reason: r.Reason, Message: r.Message, Do: advice(r.Reason)})
	}
	return all
}

// again says how often it has failed, and when the next attempt is.
func again(h *kubevirtv1.HibernationStatus) string {
	words := ""
	if h.Failures > 1 {
		words = fmt.Sprintf("; %d attempts have failed", h.Failures)
	}
	if h.RetryTimestamp != nil {
		words += "; the next one is at " + h.RetryTimestamp.UTC().Format(time.RFC3339)
	}
	return words
}
