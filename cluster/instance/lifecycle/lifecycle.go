package lifecycle

import (
	"slices"
	"time"

	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// EndOthers ends the pods of earlier instances, which nobody else looks after.
func EndOthers(o *view.View) action.Action {
	for _, p := range o.Others {
		switch {
		case p.Gone:
		case stranded(p):
			return action.DestroyPod{Pod: p}
		case !p.Deleting():
			return action.DeletePod{Pod: p}
		case askable(p):
			return action.ConfirmEnd{Pod: p}
		case p.Ended() && p.Held():
			return action.ReleasePod{Pod: p}
		}
	}
	return nil
}

// Protect puts the finalizer on an instance that has not ended.
func Protect(o *view.View) action.Action {
	if o.Deleting() || o.Final() || slices.Contains(o.Instance.Finalizers, contract.FinalizerInstance) {
		return nil
	}
	return action.Protect{}
}

// CreatePod makes the pod of an instance that has never had one, once nothing speaks against it.
func CreatePod(o *view.View) action.Action {
	_, _, had := view.Active(&o.Instance.Status)
	if o.Pod != nil || had || o.Deleting() || !o.NeverHadPod() || claims.Waits(o) != nil {
		return nil
	}
	return action.CreatePod{}
}

// ConfirmEnd asks the agent of a pod whose VM may have ended.
func ConfirmEnd(o *view.View) action.Action {
	if o.Pod == nil || o.Final() && !o.Pod.Held() || !askable(o.Pod) && !overUnheard(o.Pod, o.Now) {
		return nil
	}
	return action.ConfirmEnd{Pod: o.Pod}
}

// askable: the kubelet ought to say that the pod has ended and does not, or the node is said to be
// lost, and the agent may know. Of a pod that is gone its agent may not be heard: it is listened to
// for the pods that are there.
func askable(p *view.Pod) bool {
	if p.Ended() || p.Confirming || p.Asked || p.Lives() || !p.Bound() && !p.Stray() {
		return false
	}
	return p.Gone || p.Report.Current && (p.Deleting() || p.Terminal() || view.UnseenEnd(p.Pod) != nil || p.LostNode())
}

// overUnheard: the VM has ended, and the kubelet, whose node is not ready, can't say so.
func overUnheard(p *view.Pod, now time.Time) bool {
	return p.Bound() && !p.Ended() && !p.Confirming && !p.Asked && p.Report.Current && view.Stopped(p.Report.VM) && !p.Silence(now).IsZero()
}

// EndPod deletes the pod of an instance that is being deleted, one that failed before it was
// bound to a node, or whose claim is being filled again, one that another controller made when the instance had ended, and by force
// one whose node is lost.
func EndPod(o *view.View) action.Action {
	p := o.Pod
	switch {
	case p == nil || p.Gone:
	case stranded(p):
		return action.DestroyPod{Pod: p}
	case !p.Deleting() && (o.Deleting() || !p.Bound() && (p.Terminal() || claims.Refilled(o)) || o.Final() && !p.Ended()):
		return action.DeletePod{Pod: p}
	}
	return nil
}

// stranded: the pod's node is lost, and with it the kubelet that would delete it in the end.
func stranded(p *view.Pod) bool {
	forced := p.Deleting() && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	return p.Bound() && p.Lost() && !forced
}

// ReleasePod lets the pod go once the instance is known to have ended: it never gets another.
func ReleasePod(o *view.View) action.Action {
	if o.Pod == nil || !o.Pod.Held() || !o.Pod.Ended() || !o.Final() {
		return nil
	}
	return action.ReleasePod{Pod: o.Pod}
}

// Finalize lets an instance go that has ended, once its pod is let go.
func Finalize(o *view.View) action.Action {
	if !o.Deleting() || !o.Final() || !slices.Contains(o.Instance.Finalizers, contract.FinalizerInstance) {
		return nil
	}
	if p := o.Pod; p != nil && (p.Held() || sleeps(o) && !p.Gone) || sleeps(o) && len(o.Attachments) > 0 {
		return nil
	}
	return action.Finalize{}
}

// sleeps: the guest has given back all that it had. The instance stays until that is so: its VM is
// Hibernated once the instance is gone.
func sleeps(o *view.View) bool {
	reason := o.Instance.Status.Reason
	return reason == condition.ReasonSaved || reason == condition.ReasonSuspended
}
