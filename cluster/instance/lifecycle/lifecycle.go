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
func EndOthers(v *view.View) action.Action {
	for _, p := range v.Others {
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
func Protect(v *view.View) action.Action {
	if v.Deleting() || v.Final() || slices.Contains(v.Instance.Finalizers, contract.FinalizerInstance) {
		return nil
	}
	return action.Protect{}
}

// CreatePod makes the pod of an instance that has never had one, once nothing speaks against it.
func CreatePod(v *view.View) action.Action {
	_, _, had := view.Active(&v.Instance.Status)
	if v.Pod != nil || had || v.Deleting() || !v.NeverHadPod() || claims.Waits(v) != nil {
		return nil
	}
	return action.CreatePod{}
}

// ConfirmEnd asks the agent of a pod whose VM may have ended.
func ConfirmEnd(v *view.View) action.Action {
	if v.Pod == nil || v.Final() && !v.Pod.Held() || !askable(v.Pod) && !overUnheard(v.Pod, v.Now) {
		return nil
	}
	return action.ConfirmEnd{Pod: v.Pod}
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
func EndPod(v *view.View) action.Action {
	p := v.Pod
	switch {
	case p == nil || p.Gone:
	case stranded(p):
		return action.DestroyPod{Pod: p}
	case !p.Deleting() && (v.Deleting() || !p.Bound() && (p.Terminal() || claims.Refilled(v)) || v.Final() && !p.Ended()):
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
func ReleasePod(v *view.View) action.Action {
	if v.Pod == nil || !v.Pod.Held() || !v.Pod.Ended() || !v.Final() {
		return nil
	}
	return action.ReleasePod{Pod: v.Pod}
}

// Finalize releases an instance that has ended, once its pod is released.
func Finalize(v *view.View) action.Action {
	if !v.Deleting() || !v.Final() || !slices.Contains(v.Instance.Finalizers, contract.FinalizerInstance) {
		return nil
	}
	if p := v.Pod; p != nil && (p.Held() || sleeps(v) && !p.Gone) || sleeps(v) && len(v.Attachments) > 0 {
		return nil
	}
	return action.Finalize{}
}

// sleeps: the guest has given back all that it had. The instance stays until that is so: its VM is
// Hibernated once the instance is gone.
func sleeps(v *view.View) bool {
	reason := v.Instance.Status.Reason
	return reason == condition.ReasonSaved || reason == condition.ReasonSuspended
}
