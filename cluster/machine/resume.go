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
func (v View) startStrategy() kubevirtv1.StartStrategy {
	if s := v.VM.Spec.StartStrategy; s != nil && *s != "" {
		if strategy, known := configuration.StartStrategy(*s); known {
			return strategy
		}
		return kubevirtv1.StartRestore // nothing is discarded by a misspelling
	}
	if v.Cluster.Hibernation.StartStrategy == kubevirtv1.StartBoot {
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
func sleep(v View, d *Decision) {
	own := v.Own
	s := d.Status
	if v.Strategy == kubevirtv1.RunStrategyHibernate {
		s.Evacuation = false
	}
	image := savedImage(own)
	switch {
	case own == nil, image != nil && d.records(image), s.Image == nil && suspended(own):
	case s.Image == nil:
		if run.Ran(own) {
			d.Status, d.Resume = nil, nil
		}
	case restores(own, s.Image) && run.Ran(own):
		d.First = append(d.First, letGo(own, s.Image.ClaimName)...)
		d.First = append(d.First, v.dispose(s)...)
		d.Status, d.Resume = nil, &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeCompleted}
		d.record(action.Normal(reasonResumed, "The guest goes on on node %s from its memory saved at %s", own.Status.NodeName, stampOf(s.Image.Timestamp)))
	case restores(own, s.Image) && v.stage().Ended():
		failResume(v, d)
	case restores(own, s.Image) && v.stage() == run.Deleting: // why it goes stays
	case restores(own, s.Image) && v.Spoiled != nil:
		refuseInstance(v, d, v.Spoiled.Reason, v.Spoiled.Message)
	case restores(own, s.Image):
		d.Resume = resuming(d.Resume)
	default:
		d.First = append(d.First, discardImage(v, *d)...)
		d.Status, d.Resume = nil, nil
		d.record(action.Normal(reasonImageDiscarded, "The guest boots afresh: its memory saved to %s on claim %s is discarded", s.Image.Directory, s.Image.ClaimName))
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
func discardImage(v View, d Decision) []action.Action {
	claim := d.Status.Image.ClaimName
	if slices.ContainsFunc(v.Own.Spec.UtilityVolumes, func(u kubevirtv1.UtilityVolume) bool { return u.ClaimName == claim }) {
		return nil
	}
	return v.discard(claim)
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
func failResume(v View, d *Decision) {
	own := v.Own
	reason, message := reasonRestoreFailed, ""
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
	message = strings.TrimPrefix(message, reason+": ") // a shim's words begin with it
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

// resumes: the run strategy, or a request, has a hibernated VM start.
func resumes(v View, d Decision) bool {
	switch v.Strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce:
		return true
	case kubevirtv1.RunStrategyManual:
		rs := d.Resume
		again := rs != nil && rs.Phase == kubevirtv1.ResumeFailed && rs.RetryTimestamp != nil // as the status says
		return v.Request == kubevirtv1.StateChangeStart || d.Status.Evacuation || again
	}
	return false
}

// wake has a VM that sleeps start, if it is to run and its resume need not wait.
func wake(v View, d *Decision) {
	if resumes(v, *d) {
		d.Starts = !waits(v, d)
		return
	}
	if rs := d.Resume; rs != nil && rs.Phase == kubevirtv1.ResumeInProgress {
		d.Resume = nil // its instance was stopped before the guest went on
	}
}

// waits: the resume has failed, and is not tried now.
func waits(v View, d *Decision) bool {
	rs := d.Resume
	if rs == nil || rs.Phase != kubevirtv1.ResumeFailed || v.Request == kubevirtv1.StateChangeStart {
		return false
	}
	if rs.RetryTimestamp != nil {
		if !run.Awaited(rs.RetryTimestamp, v.Now) {
			return false
		}
		d.Retry = rs.RetryTimestamp.Time
		return true
	}
	return rs.FailedGeneration == v.VM.Generation && rs.FailedClaimUID == imageClaim(v, *d)
}

// Restores reports whether a start goes on from an image.
func Restores(v View, d Decision) bool {
	return d.Asleep() && d.Status.Image != nil && v.startStrategy() == kubevirtv1.StartRestore
}

// Restore returns the run that goes on from the image. It is nil where there can be none, and the decision says
// why.
func Restore(v View, d *Decision, paused bool) (*run.Run, error) {
	image := d.Status.Image
	switch claim := v.Claims[image.ClaimName]; {
	case claim == nil:
		refuseResume(v, d, contract.RestoreImageMissing, fmt.Sprintf("claim %s, which has the guest's memory, does not exist", image.ClaimName), "")
		return nil, nil
	case claim.DeletionTimestamp != nil:
		refuseResume(v, d, contract.RestoreImageMissing, fmt.Sprintf("claim %s, which has the guest's memory, is being deleted", image.ClaimName), "")
		return nil, nil
	case v.Spoiled != nil:
		refuseResume(v, d, v.Spoiled.Reason, v.Spoiled.Message, "")
		return nil, nil
	}
	past := v.VM.DeepCopy()
	past.Generation = run.GenerationIn(image.VirtualMachineRevisionName)
	switch {
	case v.Saved != nil:
		past.Spec = *v.Saved
	case past.Generation != v.VM.Generation:
		refuseResume(v, d, reasonRevisionGone, fmt.Sprintf("ControllerRevision %s, which has the spec that the guest was started with, does not exist, and the VM's spec is another by now", image.VirtualMachineRevisionName), "")
		return nil, nil
	}
	made, err := run.New(past, false)
	if err != nil {
		return nil, err
	}
	goOn(made.Instance, past, d.Status, paused)
	// A claim that stays is mounted, so that the next save does not wait for it; and so is one that could not
	// be attached.
	made.Instance.Spec.RestoreFrom.Attached = image.Attachable && d.Status.ClaimCreated && (d.Resume == nil || d.Resume.Failures == 0)
	d.Resume = resuming(d.Resume)
	return made, nil
}

// goOn has an instance go on from an image. It has the hardware of the one that was saved.
func goOn(instance *kubevirtv1.VirtualMachineInstance, past *kubevirtv1.VirtualMachine, s *kubevirtv1.HibernationStatus, paused bool) {
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

// Unrecorded reports whether an instance says something about the hibernation that its VM's status does not have
// yet. The instance must not go before.
func Unrecorded(vm *kubevirtv1.VirtualMachine, own *kubevirtv1.VirtualMachineInstance) bool {
	s := vm.Status.HibernationStatus
	if image := savedImage(own); image != nil {
		return s == nil || s.Image == nil || s.Image.ID != image.ID
	}
	return s != nil && s.Image != nil && restores(own, s.Image) && run.Ran(own)
}
