package attach

import (
	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// Wanted is the claim that is to be attached to the pod; empty: none.
func Wanted(v *view.View) string {
	if v.Pod == nil || v.Pod.Gone || v.Pod.Ended() || !v.Pod.Bound() {
		return ""
	}
	if claim := ImageClaim(v); claim != "" {
		return claim
	}
	volume := convert.HibernationVolume(v.Instance)
	if v.StopStrategy() != kubevirtv1.HibernateSave || volume == nil || MountedFromStart(v.Pod.Pod, volume.ClaimName) {
		return ""
	}
	return volume.ClaimName
}

// ImageClaim is the claim that is attached for the guest to go on from, until its status says that it runs:
// its shim has left the claim by then. Empty: none, or the pod mounts it.
func ImageClaim(v *view.View) string {
	image := convert.AttachedImage(v.Instance)
	if image == nil || v.Final() || v.Ran(v.Recorded()) || v.Pod == nil || MountedFromStart(v.Pod.Pod, image.ClaimName) {
		return ""
	}
	return image.ClaimName
}

// Attach makes the pod of a volume for the guest's memory.
func Attach(v *view.View) action.Action {
	claim := Wanted(v)
	if claim == "" || v.Pod.Deleting() || v.Refused != nil || unfit(v, claim) != nil || Pod(v, claim) != nil {
		return nil
	}
	if v.Recorded() != kubevirtv1.PhaseRunning && ImageClaim(v) == "" {
		return nil
	}
	return action.Attach{Claim: claim}
}

// Detach deletes the pods of volumes that nobody wants to be attached any more, and those
// that have ended. It waits for the end of a call: it may have the volume's descriptor.
func Detach(v *view.View) action.Action {
	if v.Call != nil && v.Call.State == saves.Running || len(v.Attachments) > 0 && undoesSave(v) {
		return nil
	}
	claim := Wanted(v)
	for _, p := range v.Attachments {
		over := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if p.DeletionTimestamp == nil && (claim == "" || !attaches(p, claim) || over) {
			return action.Detach{Attachment: p}
		}
	}
	return nil
}

// undoesSave: the agent still has the volume, and will say when it has not.
func undoesSave(v *view.View) bool {
	return !v.Pod.Ended() && v.Pod.Report.Current && v.Pod.Report.VM.GetStatus().GetState() == nodev1.State_STATE_SAVING
}

// unfit is why a claim can't be attached; nil: it can, as far as is known.
func unfit(v *view.View, claim string) *condition.Fault {
	c := v.Claims[claim]
	switch {
	case c == nil:
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "there is no PersistentVolumeClaim " + claim + " in namespace " + v.Instance.Namespace + purposeOf(v, claim)}
	case c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "claim " + claim + " has volumeMode Block, and a guest's memory is saved to files: name a claim with volumeMode Filesystem"}
	}
	return nil
}

// purposeOf is what a claim that is missing is needed for, and what to do.
func purposeOf(v *view.View, claim string) string {
	if ImageClaim(v) == claim {
		return ", which has the guest's memory: bring it back, or delete pod " + v.Pod.Name
	}
	return " to save the guest's memory to: create it"
}
