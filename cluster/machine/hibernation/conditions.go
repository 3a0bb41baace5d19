package hibernation

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
