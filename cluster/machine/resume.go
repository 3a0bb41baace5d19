package machine

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// Reasons of events and conditions about resumes.
const (
	reasonResumed        = "Resumed"
	reasonResumeFailed   = "ResumeFailed"
	reasonImageDiscarded = "ImageDiscarded"
	reasonImageKept      = "ImageKept"
	reasonRestoreFailed  = "RestoreFailed"
	reasonRevisionGone   = "RevisionGone"
)

// startStrategy is what a start does with the guest's saved memory: the VM's word, else the
// cluster's.
func startStrategy(o observed) kubevirtv1.StartStrategy {
	if s := o.vm.Spec.StartStrategy; s != nil && *s != "" {
		if strategy, known := configuration.StartStrategy(*s); known {
			return strategy
		}
		return kubevirtv1.StartRestore // nothing is discarded by a misspelling
	}
	if o.cluster.Hibernation.StartStrategy == kubevirtv1.StartBoot {
		return kubevirtv1.StartBoot
	}
	return kubevirtv1.StartRestore
}

// restores: an instance goes on from an image, if from that one.
func restores(own *kubevirtv1.VirtualMachineInstance, image *kubevirtv1.SavedImage) bool {
	return own != nil && own.Spec.RestoreFrom != nil && (image == nil || own.Spec.RestoreFrom.ID == image.ID)
}

// sleep is what becomes of a VM whose guest is saved, by the instance that it has: the one that was
// saved, which goes; one that goes on from the image; or one that has booted.
func (r *ruling) sleep(own *kubevirtv1.VirtualMachineInstance) {
	h := &r.hibernation
	s := h.status
	if r.strategy == kubevirtv1.RunStrategyHibernate {
		s.Evacuation = false
	}
	image := savedImage(own)
	switch {
	case own == nil, image != nil && h.records(image), s.Image == nil && suspended(own):
	case s.Image == nil:
		if run.Ran(own) {
			h.status, h.resume = nil, nil
		}
	case restores(own, s.Image) && run.Ran(own):
		h.first = append(h.first, letGo(own, s.Image.ClaimName)...)
		h.first = append(h.first, r.dispose(s)...)
		h.status, h.resume = nil, &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeCompleted}
		h.tell(corev1.EventTypeNormal, reasonResumed, "The guest goes on on node %s from its memory saved at %s", own.Status.NodeName, stampOf(s.Image.Timestamp))
	case restores(own, s.Image) && r.state.Ended():
		r.failResume(own)
	case restores(own, s.Image) && r.state == run.Deleting: // why it goes stays
	case restores(own, s.Image) && r.spoiled != nil:
		r.refuseInstance(own, r.spoiled.Reason, r.spoiled.Message)
	case restores(own, s.Image):
		h.resume = resuming(h.resume)
	default:
		h.first = append(h.first, r.discardImage(own)...)
		h.status, h.resume = nil, nil
		h.tell(corev1.EventTypeNormal, reasonImageDiscarded, "The guest boots afresh: its memory saved to %s on claim %s is discarded", s.Image.Directory, s.Image.ClaimName)
	}
}

// letGo takes from an instance the volume that its guest has gone on from, if that was attached for the
// resume alone.
func letGo(own *kubevirtv1.VirtualMachineInstance, claim string) []action.Action {
	left := slices.DeleteFunc(slices.Clone(own.Spec.UtilityVolumes), func(v kubevirtv1.UtilityVolume) bool {
		return forMemory(v) && v.ClaimName == claim
	})
	if !own.Spec.RestoreFrom.Attached || len(left) == len(own.Spec.UtilityVolumes) {
		return nil
	}
	return []action.Action{direct(own, own.Spec.StopStrategy, left)}
}

func stampOf(t *metav1.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// discardImage deletes the claim with an image that nobody wants any more, if the VM made it and
// the instance does not use it.
func (r *ruling) discardImage(own *kubevirtv1.VirtualMachineInstance) []action.Action {
	claim := r.hibernation.status.Image.ClaimName
	if slices.ContainsFunc(own.Spec.UtilityVolumes, func(v kubevirtv1.UtilityVolume) bool { return v.ClaimName == claim }) {
		return nil
	}
	return r.discard(claim)
}

// resuming is the status of a resume that has an instance.
func resuming(was *kubevirtv1.ResumeStatus) *kubevirtv1.ResumeStatus {
	to := &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeInProgress}
	if was != nil {
		to.Failures, to.LastFailedVMIUID = was.Failures, was.LastFailedVMIUID
	}
	return to
}

// mended reports whether a resume that failed for this reason has to wait for somebody: another
// try would end in the same way.
func mended(reason string) bool {
	return slices.Contains([]string{
		contract.RestoreImageUsed, contract.RestoreImageMissing, contract.RestoreImageDamaged,
		contract.RestoreImageUnfit, contract.RestoreDiskChanged, reasonRevisionGone,
	}, reason)
}

// failResume records why the guest did not go on, before the instance that says so is deleted.
// Everything else stays as it is.
func (r *ruling) failResume(own *kubevirtv1.VirtualMachineInstance) {
	reason, message := reasonRestoreFailed, ""
	if own.Status.Reason != "" {
		reason = own.Status.Reason
	}
	for _, of := range []string{kubevirtv1.ConditionReady, kubevirtv1.ConditionSynchronized, kubevirtv1.ConditionHibernationRestoreInProgress} {
		c := find(own.Status.Conditions, of)
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
	r.refuseInstance(own, reason, message)
}

// refuseInstance records once why the guest of an instance does not go on.
func (r *ruling) refuseInstance(own *kubevirtv1.VirtualMachineInstance, reason, message string) {
	if rs := r.hibernation.resume; rs != nil && rs.Phase == kubevirtv1.ResumeFailed && rs.LastFailedVMIUID == own.UID {
		return
	}
	r.refuseResume(reason, message, own.UID)
}

// refuseResume records a failure of the resume, of an instance or of what comes before it.
func (r *ruling) refuseResume(reason, message string, instance types.UID) {
	h := &r.hibernation
	message = strings.TrimPrefix(message, reason+": ") // a shim's words begin with it
	failures := int32(1)
	if was := h.resume; was != nil {
		failures += min(max(was.Failures, 0), 1000)
	}
	to := &kubevirtv1.ResumeStatus{
		Phase: kubevirtv1.ResumeFailed, Reason: action.Clip(reason, 64), Message: action.Clip(message, action.Longest), Failures: failures,
		LastFailedVMIUID: instance, FailedGeneration: r.vm.Generation, FailedClaimUID: r.imageClaim(),
	}
	advice := "start it again once that is mended, or set startStrategy: Boot, which discards the saved memory"
	if !mended(reason) {
		retry := metav1.NewTime(r.now.Add(saveRetry(failures))).Rfc3339Copy()
		to.RetryTimestamp = &retry
		advice = "it is tried again at " + stampOf(&retry)
	}
	was := h.resume
	if was != nil && was.Phase == to.Phase && was.Reason == to.Reason && was.FailedGeneration == to.FailedGeneration && was.FailedClaimUID == to.FailedClaimUID && instance == "" && mended(reason) {
		return // it is known, and nobody has done anything about it
	}
	h.resume = to
	h.tell(corev1.EventTypeWarning, reasonResumeFailed, "%s: %s; %s", to.Reason, to.Message, advice)
}

// imageClaim is the UID of the claim with the image, or empty.
func (r *ruling) imageClaim() types.UID {
	s := r.hibernation.status
	if s == nil || s.Image == nil || r.claims[s.Image.ClaimName] == nil {
		return ""
	}
	return r.claims[s.Image.ClaimName].UID
}

// wakes: the run strategy, or a request, has a hibernated VM start.
func (r *ruling) wakes() bool {
	switch r.strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce:
		return true
	case kubevirtv1.RunStrategyManual:
		rs := r.hibernation.resume
		again := rs != nil && rs.Phase == kubevirtv1.ResumeFailed && rs.RetryTimestamp != nil // as the status says
		return first(r.requests) == kubevirtv1.StateChangeStart || r.hibernation.status.Evacuation || again
	}
	return false
}

// waits: the resume has failed, and is not tried now.
func (r *ruling) waits() bool {
	rs := r.hibernation.resume
	if rs == nil || rs.Phase != kubevirtv1.ResumeFailed || first(r.requests) == kubevirtv1.StateChangeStart {
		return false
	}
	if rs.RetryTimestamp != nil {
		if !awaited(rs.RetryTimestamp, r.now) {
			return false
		}
		r.retry = rs.RetryTimestamp.Time
		return true
	}
	return rs.FailedGeneration == r.vm.Generation && rs.FailedClaimUID == r.imageClaim()
}

// restore sets the instance that goes on from the image, or why there can be none.
func (r *ruling) restore(paused bool) {
	h := &r.hibernation
	image := h.status.Image
	if startStrategy(r.observed) != kubevirtv1.StartBoot {
		switch claim := r.claims[image.ClaimName]; {
		case claim == nil:
			r.refuseResume(contract.RestoreImageMissing, fmt.Sprintf("claim %s, which has the guest's memory, does not exist", image.ClaimName), "")
			return
		case claim.DeletionTimestamp != nil:
			r.refuseResume(contract.RestoreImageMissing, fmt.Sprintf("claim %s, which has the guest's memory, is being deleted", image.ClaimName), "")
			return
		}
	}
	if r.spoiled != nil {
		r.refuseResume(r.spoiled.Reason, r.spoiled.Message, "")
		return
	}
	past := r.vm.DeepCopy()
	past.Generation = run.GenerationIn(image.VirtualMachineRevisionName)
	switch {
	case r.saved != nil:
		past.Spec = *r.saved
	case past.Generation != r.vm.Generation:
		r.refuseResume(reasonRevisionGone, fmt.Sprintf("ControllerRevision %s, which has the spec that the guest was started with, does not exist, and the VM's spec is another by now", image.VirtualMachineRevisionName), "")
		return
	}
	revision, err := run.NewRevision(past)
	if err != nil {
		r.fault = &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: err.Error()}
		return
	}
	r.revision, r.creating = revision, restored(past, h.status, paused)
	// A claim that stays is mounted, so that the next save does not wait for it; and so is one that could not
	// be attached.
	r.creating.Spec.RestoreFrom.Attached = image.Attachable && h.status.ClaimCreated && (h.resume == nil || h.resume.Failures == 0)
	h.resume = resuming(h.resume)
}

// restored returns the instance that goes on from an image. It has the hardware of the one that was
// saved.
func restored(past *kubevirtv1.VirtualMachine, s *kubevirtv1.HibernationStatus, paused bool) *kubevirtv1.VirtualMachineInstance {
	instance := run.NewInstance(past, false)
	if asked := past.Spec.Template.Spec.StartStrategy; asked != nil && *asked == kubevirtv1.StartPaused {
		paused = true
	}
	strategy := kubevirtv1.StartRestore
	instance.Spec.StartStrategy, instance.Spec.RestoreFrom = &strategy, s.Image.DeepCopy()
	instance.Spec.RestoreFrom.Paused = paused || s.Image.Paused
	instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{utilityVolume(s.Image.ClaimName)}
	if s.Evacuation && s.Image.NodeName != "" {
		avoid(&instance.Spec, s.Image.NodeName)
	}
	return instance
}

// avoid has an instance prefer other nodes than the one that it was to leave.
func avoid(s *kubevirtv1.VirtualMachineInstanceSpec, node string) {
	if s.Affinity == nil {
		s.Affinity = &corev1.Affinity{}
	}
	if s.Affinity.NodeAffinity == nil {
		s.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	a := s.Affinity.NodeAffinity
	a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
		Weight: 100,
		Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}},
		}},
	})
}

// unrecorded: the instance says something about the hibernation that the VM's status does not have
// yet. The instance must not go before.
func unrecorded(o observed, own *kubevirtv1.VirtualMachineInstance) bool {
	s := o.vm.Status.HibernationStatus
	if image := savedImage(own); image != nil {
		return s == nil || s.Image == nil || s.Image.ID != image.ID
	}
	return s != nil && s.Image != nil && restores(own, s.Image) && run.Ran(own)
}
