package hibernation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

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

// resume has a VM that sleeps start, if it is to run and its resume need not wait.
func resume(v View, d *Decision) {
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
	instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{UtilityVolume(s.Image.ClaimName)}
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
