package attach

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/sentences"
)

// Progress is how far the volume is from being attached, and whether that is a failure.
func Progress(v *view.View) (f condition.Fault, failed bool) {
	volume := convert.HibernationVolume(v.Instance)
	if volume == nil {
		return condition.Fault{Reason: condition.ReasonAttachFailed, Message: "spec.utilityVolumes has no volume of type " + kubevirtv1.UtilityHibernation + " to save the guest's memory to"}, true
	}
	if f := Fault(v, volume.ClaimName); f != nil {
		return *f, true
	}
	return condition.Fault{Reason: condition.ReasonAttaching, Message: "claim " + volume.ClaimName + " is attached to the VM's pod on node " + v.Pod.Spec.NodeName}, false
}

// Fault is why a claim is not attached; nil: nothing is known to be wrong.
func Fault(v *view.View, claim string) *condition.Fault {
	if f := unfit(v, claim); f != nil {
		return f
	}
	if v.Refused != nil {
		return v.Refused
	}
	p := Pod(v, claim)
	if p == nil || v.Now.Before(p.CreationTimestamp.Add(attachPatience)) || Attached(p, v.Pod.Spec.NodeName) {
		return nil
	}
	todo := "; see kubectl describe pod " + p.Name
	if ImageClaim(v) == claim {
		todo += ", or delete pod " + v.Pod.Name + ": the next one mounts the claim"
	}
	failed := func(why string) *condition.Fault {
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "claim " + claim + " can't be attached to the VM's pod on node " + v.Pod.Spec.NodeName + ": " + why + todo}
	}
	if c := view.PodCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return failed(c.Message)
	}
	if v.AttachTrouble != nil {
		return failed(v.AttachTrouble.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" && w.Reason != "" {
			return failed(w.Reason + ": " + sentences.Steady(w.Message))
		}
	}
	return nil
}

// Suspicious is a pod that has a node and attaches nothing for so long that its events
// are read; nil: there is none.
func Suspicious(v *view.View) *corev1.Pod {
	claim := Wanted(v)
	if claim == "" {
		return nil
	}
	p := Pod(v, claim)
	if p == nil || p.DeletionTimestamp != nil || p.Spec.NodeName == "" || Attached(p, v.Pod.Spec.NodeName) || v.Now.Before(p.CreationTimestamp.Add(attachPatience)) {
		return nil
	}
	return p
}

// NextLook is when a volume that is being attached is looked at again though nothing has
// changed; zero: never.
func NextLook(v *view.View) time.Time {
	claim := Wanted(v)
	if claim == "" {
		return time.Time{}
	}
	p := Pod(v, claim)
	if p == nil || Attached(p, v.Pod.Spec.NodeName) {
		return time.Time{}
	}
	if first := p.CreationTimestamp.Add(attachPatience); v.Now.Before(first) {
		return first
	}
	return v.Now.Add(trouble.QuietInterval)
}
