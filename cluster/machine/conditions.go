package machine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// Conditions are those of a VM about its hibernation: its instance's where that has one that is
// of now, else what the VM itself knows. starts: its instance is made now.
func Conditions(v View, d Decision, starts bool) (all []kubevirtv1.Condition) {
	switch {
	case d.Asleep() && v.stage() == run.Absent && !starts:
		reason, message := reasonSaved, "the guest's memory is saved, and goes on from there"
		if d.Status.Image == nil {
			reason, message = reasonSuspended, "the guest has suspended itself to its own disk"
		}
		all = append(all, v.condition(kubevirtv1.ConditionHibernated, reason, message))
	case notRunning(v, d):
		c := v.condition(kubevirtv1.ConditionHibernated, reasonNotRunning, "the VM was not running when it was to hibernate: nothing is saved")
		c.Status = metav1.ConditionFalse
		all = append(all, c)
	}
	return append(append(all, saveCondition(v, d)...), restoreCondition(v, d)...)
}

func saveCondition(v View, d Decision) []kubevirtv1.Condition {
	s, own := d.Status, v.Own
	if own != nil && (s == nil || s.Reason != reasonClaimUnsuitable && s.Reason != reasonCannotSave) {
		if c := kubevirtv1.FindCondition(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress); c != nil {
			return []kubevirtv1.Condition{run.VMCondition(*c)}
		}
	}
	if s == nil || d.Asleep() {
		return nil
	}
	c := v.condition(kubevirtv1.ConditionHibernationInProgress, s.Phase, s.Message)
	if s.Phase == kubevirtv1.HibernationFailed {
		c.Status, c.Reason = metav1.ConditionFalse, s.Reason
	}
	return []kubevirtv1.Condition{c}
}

func restoreCondition(v View, d Decision) []kubevirtv1.Condition {
	rs, own := d.Resume, v.Own
	if rs != nil && rs.Phase == kubevirtv1.ResumeFailed {
		c := v.condition(kubevirtv1.ConditionHibernationRestoreInProgress, rs.Reason, rs.Message)
		c.Status = metav1.ConditionFalse
		return []kubevirtv1.Condition{c}
	}
	if own == nil {
		return nil
	}
	if c := kubevirtv1.FindCondition(own.Status.Conditions, kubevirtv1.ConditionHibernationRestoreInProgress); c != nil {
		return []kubevirtv1.Condition{run.VMCondition(*c)}
	}
	return nil
}

func (v View) condition(kind, reason, message string) kubevirtv1.Condition {
	return kubevirtv1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: action.Clip(message, action.Longest), ObservedGeneration: v.VM.Generation}
}

// Printable is the printable status of a VM that hibernates or goes on, or empty. One whose guest goes on as it
// could not be saved is what its guest is. creating is the instance that is made now, or nil; stops: its instance is
// deleted.
func Printable(v View, d Decision, creating *kubevirtv1.VirtualMachineInstance, stops bool) kubevirtv1.PrintableStatus {
	s, own := d.Status, v.Own
	switch {
	case s == nil:
		return ""
	case !d.Asleep():
		if s.Phase == kubevirtv1.HibernationFailed || v.stage() != run.Alive || stops || !v.saves() {
			return ""
		}
		return kubevirtv1.StatusHibernating
	case own != nil && (savedImage(own) != nil || suspended(own)):
		return kubevirtv1.StatusHibernating // it still has its pod
	case s.Image == nil && (creating != nil || own != nil):
		return ""
	case creating != nil && creating.Spec.RestoreFrom == nil:
		return ""
	case creating != nil, own != nil && v.stage() == run.Alive && !stops:
		return kubevirtv1.StatusResuming
	case own != nil && !v.stage().Ended():
		return ""
	}
	return kubevirtv1.StatusHibernated
}
