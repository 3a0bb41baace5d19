package instance

import (
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/guest"
	"github.com/vmlet/vmlet/cluster/instance/phase"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// decide returns the next action; nil if there is none: the instance is looked at again after the time that it
// returns, though nothing has changed; 0: never. It is a function of its argument alone: it can be asked
// again after each action, after a crash and by two controllers at once, as each action is
// allowed by what is observed and not by what was done before.
//
// What keeps a VM from running twice: a pod is made only for an instance whose status knows
// of none; a pod keeps its finalizer until its VM has ended and the instance's status says
// so, for good; and the instance keeps its own until then.
func decide(o *view.View) (next action.Action, again time.Duration) {
	rules := []func(*view.View) action.Action{save.Cancel, endOthers}
	if o.Instance != nil {
		rules = append(rules, protectInstance, createPod, confirmEnd, endPod, writeStatus, save.Start, hurryGuest, guest.Resize, attach.Detach, attach.Attach,
			releasePod, finalizeInstance, labelInstance, relabelPod)
	}
	for _, rule := range rules {
		if next := rule(o); next != nil {
			return next, 0
		}
	}
	return nil, nextLook(o)
}

// endOthers ends the pods of earlier instances, which nobody else looks after.
func endOthers(o *view.View) action.Action {
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

func protectInstance(o *view.View) action.Action {
	if o.Deleting() || o.Final() || slices.Contains(o.Instance.Finalizers, contract.FinalizerInstance) {
		return nil
	}
	return action.Protect{}
}

func createPod(o *view.View) action.Action {
	_, _, had := view.Active(&o.Instance.Status)
	if o.Pod != nil || had || o.Deleting() || !o.NeverHadPod() || claims.Waits(o) != nil {
		return nil
	}
	return action.CreatePod{}
}

func confirmEnd(o *view.View) action.Action {
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

// endPod deletes the pod of an instance that is being deleted, one that failed before it was
// bound to a node, or whose claim is being filled again, one that another controller made when the instance had ended, and by force
// one whose node is lost.
func endPod(o *view.View) action.Action {
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

func writeStatus(o *view.View) action.Action {
	s := statusOf(o)
	if apiequality.Semantic.DeepEqual(*s, o.Instance.Status) {
		return nil
	}
	return action.WriteStatus{Status: s, Events: news(&o.Instance.Status, s)}
}

// hurryGuest gives a guest less time to shut down, or none, if its grace period was shortened
// after its pod was made: the pod's own stays as it is. The agent is asked again whenever
// something has changed, and takes the earliest end that it has been asked for. A shim that waits for
// a save when its pod ends stops to wait as well. A guest whose container the kubelet has lost sight
// of is ended by nobody else.
func hurryGuest(o *view.View) action.Action {
	p, grace := o.Pod, o.Instance.Spec.TerminationGracePeriodSeconds
	if p == nil || !p.Deleting() || p.Ended() || p.Hurried || !p.Report.Current || !view.Started(p.Report.VM) {
		return nil
	}
	own := p.Report.VM.GetStatus().GetEffectiveSpec().GetStopGracePeriod()
	switch {
	case grace != nil && *grace <= 0 && (own == nil || own.AsDuration() > 0):
		return action.KillGuest{Pod: p}
	case grace != nil && own != nil && seconds(*grace) < own.AsDuration(), awaitsInVain(o), view.UnseenEnd(p.Pod) != nil:
		return action.HurryGuest{Pod: p}
	}
	return nil
}

// awaitsInVain: the pod is being deleted, its shim waits for a save, and nobody has asked for one.
func awaitsInVain(o *view.View) bool {
	state := o.Pod.Report.VM.GetStatus().GetState()
	return convert.AwaitsSave(o.Instance) && (o.Call == nil || !o.Call.Active()) &&
		(state == nodev1.State_STATE_RUNNING || state == nodev1.State_STATE_PAUSED)
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// releasePod lets the pod go once the instance is known to have ended: it never gets another.
func releasePod(o *view.View) action.Action {
	if o.Pod == nil || !o.Pod.Held() || !o.Pod.Ended() || !o.Final() {
		return nil
	}
	return action.ReleasePod{Pod: o.Pod}
}

func finalizeInstance(o *view.View) action.Action {
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

// labelInstance comes after Running is written, so that it delays nothing.
func labelInstance(o *view.View) action.Action {
	name := o.Instance.Status.NodeName
	if o.Deleting() || o.Recorded() != kubevirtv1.PhaseRunning || name == "" || o.Instance.Labels[contract.LabelNodeName] == name {
		return nil
	}
	return action.LabelInstance{}
}

// relabelPod has Services follow the labels of an instance that runs.
func relabelPod(o *view.View) action.Action {
	p := o.Pod
	if p == nil || p.Gone || p.Deleting() || p.Ended() || p.Relabelled || o.Final() || !relabelled(p.Pod, o.Instance) {
		return nil
	}
	return action.RelabelPod{Pod: p}
}

// nextLook is when something is due though nothing changes; 0: nothing is.
func nextLook(o *view.View) time.Duration {
	due := lossesDue(o)
	if o.Instance != nil && !o.Final() {
		due = append(due, changesDue(o)...)
	}
	first := time.Duration(0)
	for _, at := range due {
		if in := at.Sub(o.Now); in > 0 && (first == 0 || in < first) {
			first = in
		}
	}
	return first
}

// lossesDue is when pods' nodes are lost if their agents are not heard until then.
func lossesDue(o *view.View) (due []time.Time) {
	for _, p := range append(slices.Clone(o.Others), o.Pod) {
		if p != nil && p.Bound() && p.LostNode() && !p.Report.Current {
			due = append(due, o.Now.Add(view.HeardPatience-p.Report.Silence))
		}
	}
	return due
}

// changesDue is when something of an instance that goes on may change by itself: a container that
// does not come to run its guest, a pod whose events may say why it does not start, a node that is
// not heard of, a pod that is gone: of its VM no agent tells anything by itself.
func changesDue(o *view.View) (due []time.Time) {
	if o.Pod == nil {
		if f := claims.Waits(o); f != nil && f.Reason == condition.ReasonClaimFilling && !o.Deleting() {
			due = append(due, o.Now.Add(fillingAgain)) // DataVolumes are not followed
		}
		return due
	}
	if since, runs := o.Pod.Runs(); runs && o.Recorded() == kubevirtv1.PhaseScheduling {
		due = append(due, since.Add(phase.ScheduledPatience))
	}
	if since, runs := o.Pod.Runs(); runs && o.Recorded() == kubevirtv1.PhaseScheduled && o.Pod.Report.VM == nil {
		due = append(due, since.Add(takenPatience))
	}
	if !trouble.QuietSince(o).IsZero() {
		due = append(due, trouble.NextReading(o))
	}
	if o.Pod.Gone && !o.Pod.Ended() {
		due = append(due, o.Now.Add(confirmAgain))
	}
	if t := view.ComputeEnd(o.Pod.Pod); t != nil && o.Pod.Lives() {
		due = append(due, t.FinishedAt.Add(phase.DisputePatience))
	}
	if n := o.Pod.Node; o.Pod.Bound() && !o.Pod.Report.Current && !n.Renewed.IsZero() {
		next := n.LeaseDue()
		if !next.After(o.Now) { // it may be renewed again, and nobody would tell
			next = o.Now.Add(view.LeaseLimit)
		}
		due = append(due, next)
	}
	if o.Call != nil && !o.Call.Active() && save.Wanted(o) {
		due = append(due, save.TryAgain(o.Call))
	}
	if o.Call != nil && o.Call.Unsure {
		due = append(due, save.SureBy(o.Call))
	}
	if next := attach.NextLook(o); !next.IsZero() {
		due = append(due, next)
	}
	if c := condition.Find(o.Instance.Status.Conditions, kubevirtv1.ConditionAgentConnected); c != nil && !c.LastProbeTime.IsZero() {
		due = append(due, c.LastProbeTime.Add(guestInterval))
	}
	return due
}
