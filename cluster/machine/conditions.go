package machine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// sleepConditions are those of a VM about its hibernation: its instance's where that has one that is
// of now, else what the VM itself knows.
func (r ruling) sleepConditions() (all []kubevirtv1.Condition) {
	h := &r.hibernation
	switch {
	case h.asleep() && r.state == run.Absent && r.creating == nil:
		reason, message := reasonSaved, "the guest's memory is saved, and goes on from there"
		if h.status.Image == nil {
			reason, message = reasonSuspended, "the guest has suspended itself to its own disk"
		}
		all = append(all, r.condition(kubevirtv1.ConditionHibernated, reason, message))
	case r.notRunning():
		c := r.condition(kubevirtv1.ConditionHibernated, reasonNotRunning, "the VM was not running when it was to hibernate: nothing is saved")
		c.Status = metav1.ConditionFalse
		all = append(all, c)
	}
	return append(append(all, r.saveCondition()...), r.restoreCondition()...)
}

func (r ruling) saveCondition() []kubevirtv1.Condition {
	s, own := r.hibernation.status, r.own()
	if own != nil && (s == nil || s.Reason != reasonClaimUnsuitable && s.Reason != reasonCannotSave) {
		if c := find(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress); c != nil {
			return []kubevirtv1.Condition{copied(*c)}
		}
	}
	if s == nil || r.hibernation.asleep() {
		return nil
	}
	c := r.condition(kubevirtv1.ConditionHibernationInProgress, s.Phase, s.Message)
	if s.Phase == kubevirtv1.HibernationFailed {
		c.Status, c.Reason = metav1.ConditionFalse, s.Reason
	}
	return []kubevirtv1.Condition{c}
}

func (r ruling) restoreCondition() []kubevirtv1.Condition {
	rs, own := r.hibernation.resume, r.own()
	if rs != nil && rs.Phase == kubevirtv1.ResumeFailed {
		c := r.condition(kubevirtv1.ConditionHibernationRestoreInProgress, rs.Reason, rs.Message)
		c.Status = metav1.ConditionFalse
		return []kubevirtv1.Condition{c}
	}
	if own == nil {
		return nil
	}
	if c := find(own.Status.Conditions, kubevirtv1.ConditionHibernationRestoreInProgress); c != nil {
		return []kubevirtv1.Condition{copied(*c)}
	}
	return nil
}
