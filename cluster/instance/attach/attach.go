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
func Wanted(o *view.View) string {
	if o.Pod == nil || o.Pod.Gone || o.Pod.Ended() || !o.Pod.Bound() {
		return ""
	}
	if claim := ImageClaim(o); claim != "" {
		return claim
	}
	v := convert.HibernationVolume(o.Instance)
	if o.StopStrategy() != kubevirtv1.HibernateSave || v == nil || MountedFromStart(o.Pod.Pod, v.ClaimName) {
		return ""
	}
	return v.ClaimName
}

// ImageClaim is the claim that is attached for the guest to go on from, until its status says that it runs:
// its shim has left the claim by then. Empty: none, or the pod mounts it.
func ImageClaim(o *view.View) string {
	image := convert.AttachedImage(o.Instance)
	if image == nil || o.Final() || o.Ran(o.Recorded()) || o.Pod == nil || MountedFromStart(o.Pod.Pod, image.ClaimName) {
		return ""
	}
	return image.ClaimName
}

// Attach makes the pod of a volume for the guest's memory.
func Attach(o *view.View) action.Action {
	claim := Wanted(o)
	if claim == "" || o.Pod.Deleting() || o.Refused != nil || unfit(o, claim) != nil || Pod(o, claim) != nil {
		return nil
	}
	if o.Recorded() != kubevirtv1.PhaseRunning && ImageClaim(o) == "" {
		return nil
	}
	return action.Attach{Claim: claim}
}

// Detach deletes the pods of volumes that nobody wants to be attached any more, and those
// that have ended. It waits for the end of a call: it may have the volume's descriptor.
func Detach(o *view.View) action.Action {
	if o.Call != nil && o.Call.State == saves.Running || len(o.Attachments) > 0 && undoesSave(o) {
		return nil
	}
	claim := Wanted(o)
	for _, p := range o.Attachments {
		over := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if p.DeletionTimestamp == nil && (claim == "" || !attaches(p, claim) || over) {
			return action.Detach{Attachment: p}
		}
	}
	return nil
}

// undoesSave: the agent still has the volume, and will say when it has not.
func undoesSave(o *view.View) bool {
	return !o.Pod.Ended() && o.Pod.Report.Current && o.Pod.Report.VM.GetStatus().GetState() == nodev1.State_STATE_SAVING
}

// unfit is why a claim can't be attached; nil: it can, as far as is known.
func unfit(o *view.View, claim string) *condition.Fault {
	c := o.Claims[claim]
	switch {
	case c == nil:
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "there is no PersistentVolumeClaim " + claim + " in namespace " + o.Instance.Namespace + purposeOf(o, claim)}
	case c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "claim " + claim + " has volumeMode Block, and a guest's memory is saved to files: name a claim with volumeMode Filesystem"}
	}
	return nil
}

// purposeOf is what a claim that is missing is needed for, and what to do.
func purposeOf(o *view.View, claim string) string {
	if ImageClaim(o) == claim {
		return ", which has the guest's memory: bring it back, or delete pod " + o.Pod.Name
	}
	return " to save the guest's memory to: create it"
}
