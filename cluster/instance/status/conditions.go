package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/guest"
	"github.com/vmlet/vmlet/cluster/instance/phase"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// conditionsOf are the conditions of an instance that comes to this phase. why is the reason of that.
func conditionsOf(v *view.View, phase kubevirtv1.Phase, why condition.Fault) []kubevirtv1.Condition {
	f := unsynchronized(v, phase, why)
	all := []kubevirtv1.Condition{ready(v, phase, why, f), notMigratable()}
	if f != nil {
		all = append(all, condition.New(kubevirtv1.ConditionSynchronized, metav1.ConditionFalse, f.Reason, f.Message))
	}
	if v.Pod != nil && !view.IsFinal(phase) {
		if c := view.PodCondition(v.Pod.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			all = append(all, condition.New(condition.PodScheduled, metav1.ConditionFalse, c.Reason, c.Message))
		}
	}
	all = append(all, guest.Conditions(v, phase)...)
	all = append(all, guest.ResizeConditions(v, phase)...)
	for _, c := range []*kubevirtv1.Condition{save.Condition(v, phase, why), save.RestoreCondition(v, phase, why)} {
		if c != nil {
			all = append(all, *c)
		}
	}
	for i := range all {
		all[i].ObservedGeneration = v.Instance.Generation
	}
	return all
}

func notMigratable() kubevirtv1.Condition {
	return condition.New(kubevirtv1.ConditionLiveMigratable, metav1.ConditionFalse, condition.ReasonNotSupported,
		"vmlet does not migrate running VMs yet: shut the VM down and start it to have it on another node")
}

// ready follows the pod's readiness while the guest runs. Before that it says what keeps the
// guest from running, nil if nothing is known to: it is the condition that VMs have, too.
func ready(v *view.View, phase kubevirtv1.Phase, why condition.Fault, f *condition.Fault) kubevirtv1.Condition {
	no := func(reason, message string) kubevirtv1.Condition {
		return condition.New(kubevirtv1.ConditionReady, metav1.ConditionFalse, reason, message)
	}
	switch {
	case view.IsFinal(phase):
		return no(condition.ReasonGuestNotRunning, why.Message)
	case phase == kubevirtv1.PhaseUnknown:
		return no(why.Reason, why.Message)
	case v.Pod == nil:
		return no(condition.ReasonPodNotExists, "the VM has no pod yet"+because(f))
	case v.Pod.Deleting():
		return no(condition.ReasonPodTerminating, "the VM's pod is being deleted: the guest has its grace period to shut down")
	case phase != kubevirtv1.PhaseRunning:
		if f == nil {
			f = unscheduled(v)
		}
		return no(condition.ReasonGuestNotRunning, "the guest has not started yet"+because(f))
	case guest.Paused(v):
		return no(condition.ReasonGuestNotRunning, "the guest is paused")
	}
	c := view.PodCondition(v.Pod.Pod, readyCondition(v.Pod.Pod))
	if c == nil {
		return no(condition.ReasonPodConditionMiss, "the kubelet has not said whether the pod is ready")
	}
	return condition.New(kubevirtv1.ConditionReady, metav1.ConditionStatus(c.Status), c.Reason, c.Message)
}

// readyCondition is the condition that says whether the guest is ready. A pod of a VM that stands by never is, by a
// readiness gate, so that Services leave it out.
func readyCondition(p *corev1.Pod) corev1.PodConditionType {
	if p.Labels[contract.LabelPoolStandby] != "" {
		return corev1.ContainersReady
	}
	return corev1.PodReady
}

func because(f *condition.Fault) string {
	if f == nil {
		return ""
	}
	return ": " + f.Message
}

// unscheduled is why the scheduler finds no node; nil: it has found one, or has not looked.
func unscheduled(v *view.View) *condition.Fault {
	c := view.PodCondition(v.Pod.Pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return nil
	}
	return &condition.Fault{Reason: c.Reason, Message: "no node takes the VM's pod: " + c.Message + save.WaitsForNode(v)}
}

// unsynchronized is why the VM is not as it was asked for; nil: it is, or nothing is known
// to be wrong.
func unsynchronized(v *view.View, to kubevirtv1.Phase, why condition.Fault) *condition.Fault {
	switch {
	case view.IsFinal(to):
		if view.Entered(&v.Instance.Status, kubevirtv1.PhaseRunning) || to == kubevirtv1.PhaseSucceeded {
			return nil
		}
		return &condition.Fault{Reason: condition.ReasonFailedStart, Message: why.Message}
	case v.Pod == nil:
		return claims.Waits(v)
	}
	if f := trouble.Waiting(v); f != nil {
		return f
	}
	switch {
	case v.Pod.Replaced && v.Pod.Lives() && !v.Pod.Node.FormerOff:
		return phase.OtherMachine(v)
	case to == kubevirtv1.PhaseScheduling && v.Pod.Rejected() && !v.Pod.Report.Current:
		return &condition.Fault{Reason: condition.ReasonAgentUnavailable, Message: "node " + v.Pod.Spec.NodeName + " rejected the VM's pod (" + v.Pod.Status.Message +
			"), and vmlet's agent there is not heard, which has to confirm that no VM runs: see the agents' pods on that node, and their log"}
	case to == kubevirtv1.PhaseScheduling:
		return v.Pod.Trouble
	case to == kubevirtv1.PhaseScheduled && !v.Pod.Report.Current:
		return &condition.Fault{Reason: condition.ReasonAgentUnavailable, Message: "vmlet's agent on node " + v.Pod.Spec.NodeName +
			" is not heard, and no VM starts there until it is: see the agents' pods on that node, and their log"}
	case to == kubevirtv1.PhaseScheduled && v.Pod.Report.VM == nil:
		return untaken(v)
	}
	return nil
}

// untaken: the agent is heard and has not taken up the VM in good time.
func untaken(v *view.View) *condition.Fault {
	if claim := attach.ImageClaim(v); claim != "" && !attach.Attached(attach.Pod(v, claim), v.Pod.Spec.NodeName) {
		return attach.Fault(v, claim)
	}
	since, runs := v.Pod.Runs()
	if !runs || v.Now.Before(since.Add(TakenPatience)) {
		return nil
	}
	return &condition.Fault{Reason: condition.ReasonFailedStart, Message: "the VM's container runs since " + since.UTC().Format(time.RFC3339) + ", and vmlet's agent on node " +
		v.Pod.Spec.NodeName + " has not started its VM: see that agent's log"}
}

// TakenPatience is how long an agent may take to take up a VM whose container runs, before the
// instance says so.
const TakenPatience = time.Minute
