package hibernation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/contract"
)

// mended reports whether a resume that failed for this reason has to wait for somebody: another
// try would end in the same way.
func mended(reason string) bool {
	return contract.RestoreRefused(reason) || reason == reasonRevisionGone
}

// failResume records why the guest did not go on, before the instance that says so is deleted.
// Everything else stays as it is.
func failResume(v View, d *Decision) {
	own := v.Own
	reason, message := ReasonRestoreFailed, ""
	if own.Status.Reason != "" {
		reason = own.Status.Reason
	}
	for _, of := range []string{kubevirtv1.ConditionReady, kubevirtv1.ConditionSynchronized, kubevirtv1.ConditionHibernationRestoreInProgress} {
		c := kubevirtv1.FindCondition(own.Status.Conditions, of)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}
		if c.Message != "" {
			message = c.Message
		}
		if of == kubevirtv1.ConditionHibernationRestoreInProgress && c.Reason != "" {
			reason = c.Reason
		}
	}
	if message == "" {
		message = "the instance ended before its guest went on"
	}
	refuseInstance(v, d, reason, message)
}

// refuseInstance records once why the guest of an instance does not go on.
func refuseInstance(v View, d *Decision, reason, message string) {
	if rs := d.Resume; rs != nil && rs.Phase == kubevirtv1.ResumeFailed && rs.LastFailedVMIUID == v.Own.UID {
		return
	}
	refuseResume(v, d, reason, message, v.Own.UID)
}

// refuseResume records a failure of the resume, of an instance or of what comes before it.
func refuseResume(v View, d *Decision, reason, message string, instance types.UID) {
	failures := int32(1)
	if was := d.Resume; was != nil {
		failures += min(max(was.Failures, 0), 1000)
	}
	to := &kubevirtv1.ResumeStatus{
		Phase: kubevirtv1.ResumeFailed, Reason: action.Clip(reason, 64), Message: action.Clip(message, action.Longest), Failures: failures,
		LastFailedVMIUID: instance, FailedGeneration: v.VM.Generation, FailedClaimUID: imageClaim(v, *d),
	}
	advice := "start it again once that is mended, or set startStrategy: Boot, which discards the saved memory"
	if !mended(reason) {
		retry := metav1.NewTime(v.Now.Add(saveRetry(failures))).Rfc3339Copy()
		to.RetryTimestamp = &retry
		advice = "it is tried again at " + stampOf(&retry)
	}
	was := d.Resume
	if was != nil && was.Phase == to.Phase && was.Reason == to.Reason && was.FailedGeneration == to.FailedGeneration && was.FailedClaimUID == to.FailedClaimUID && instance == "" && mended(reason) {
		return // it is known, and nobody has done anything about it
	}
	d.Resume = to
	d.record(action.Warning(reasonResumeFailed, "%s: %s; %s", to.Reason, to.Message, advice))
}

// imageClaim is the UID of the claim with the image, or empty.
func imageClaim(v View, d Decision) types.UID {
	s := d.Status
	if s == nil || s.Image == nil || v.Claims[s.Image.ClaimName] == nil {
		return ""
	}
	return v.Claims[s.Image.ClaimName].UID
}
