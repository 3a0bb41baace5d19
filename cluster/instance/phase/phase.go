package phase

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// Of is where the instance is in its life, and why where it is Unknown or has just ended.
func Of(v *view.View) (kubevirtv1.Phase, condition.Fault) {
	p := v.Pod
	switch {
	case p == nil && v.Deleting():
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the VM was deleted before it had a pod"}
	case p == nil && v.NeverHadPod():
		return kubevirtv1.PhasePending, condition.Fault{}
	case p == nil:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the VM's pod is gone"}
	case p.Ended():
		return endOf(v)
	}
	if f := doubt(v); f != nil {
		return kubevirtv1.PhaseUnknown, *f
	}
	if view.Entered(&v.Instance.Status, kubevirtv1.PhaseRunning) {
		return kubevirtv1.PhaseRunning, condition.Fault{}
	}
	since, runs := p.Runs()
	switch {
	case !runs:
		return kubevirtv1.PhaseScheduling, condition.Fault{}
	case p.Report.Current && view.Started(p.Report.VM):
		return kubevirtv1.PhaseRunning, condition.Fault{}
	case !view.Entered(&v.Instance.Status, kubevirtv1.PhaseScheduled) && v.Now.Before(since.Add(ScheduledPatience)):
		return kubevirtv1.PhaseScheduling, condition.Fault{}
	}
	return kubevirtv1.PhaseScheduled, condition.Fault{}
}

// ScheduledPatience is how long a container may run before the status says Scheduled: most
// guests run by then, and the write is saved.
const ScheduledPatience = 5 * time.Second

// DisputePatience is how much later than the kubelet an agent may say that a VM has ended, before the
// instance says so.
const DisputePatience = time.Minute

// doubt is why it is unknown whether the VM runs; nil: it is known, or its time to start has not
// passed yet.
func doubt(v *view.View) *condition.Fault {
	p := v.Pod
	end, agent := view.ComputeEnd(p.Pod), "vmlet's agent on node "+p.Spec.NodeName
	if p.Replaced && !p.Lives() {
		return OtherMachine(v)
	}
	if p.Node.Exists && !p.Node.Lost() {
		if since := p.Silence(v.Now); !since.IsZero() {
			return silentNode(v, since)
		}
	}
	switch {
	case p.Stray():
		return &condition.Fault{Reason: condition.ReasonPodNotExists, Message: "pod " + p.Name + " was removed before its VM had ended, and its node is unknown: " +
			"the agents of all nodes have to confirm that the VM does not run there; those of " + unconfirmed(p.Hosts) + " have not, and are asked again"}
	case p.Gone:
		return &condition.Fault{Reason: condition.ReasonPodNotExists, Message: "pod " + p.Name + " was removed before its VM had ended, and the agent of node " +
			p.Spec.NodeName + " has not confirmed that it does not run there: it is asked again"}
	case p.Bound() && p.Node.Lost() && !p.Lives():
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: loss(v) + "; the VM counts as ended when " + agent + " confirms it, or has not been heard for " + view.HeardPatience.String()}
	case p.Node.Lost() && (p.Denied || p.Node.Exists):
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: loss(v) + ", and " + agent + " says that the VM, or a process of its container, runs: end it, or turn the machine off"}
	case view.UnseenEnd(p.Pod) != nil && p.Lives():
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: "the kubelet of node " + p.Spec.NodeName + " has lost sight of the VM's container, and " + agent +
			" says that the VM, or a process of the container, runs: restart the VM, and the agent shuts its guest down"}
	case view.UnseenEnd(p.Pod) != nil:
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: "the kubelet of node " + p.Spec.NodeName + " has lost sight of the VM's container, which may run until " + agent +
			" confirms that it does not: see the agents' pods on that node, and their log"}
	case end != nil && !v.Now.Before(end.FinishedAt.Add(DisputePatience)):
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: "the kubelet of node " + p.Spec.NodeName + " says that the VM's container has ended, and " + agent +
			" still has the VM running: see that agent's log"}
	}
	return nil
}

// OtherMachine is that the VM's node is not the machine any more that the VM was started on.
func OtherMachine(v *view.View) *condition.Fault {
	node := v.Pod.Spec.NodeName
	text := "node " + node + " is another machine now than the one that the VM was started on, which may run it still"
	if v.Pod.Lives() {
		return &condition.Fault{Reason: condition.ReasonNodeReplaced, Message: text + ", and it runs on the new one: turn the former machine off, then restart the VM, or run kubectl taint node " +
			node + " " + contract.TaintFormerMachineOff + "=:PreferNoSchedule until it has ended"}
	}
	if v.Pod.Node.FormerOff {
		return &condition.Fault{Reason: condition.ReasonNodeReplaced, Message: text + ", though the taint says that it is off: the VM counts as ended when vmlet's agent on the new machine " +
			"confirms that it does not run there, or has not been heard for " + view.HeardPatience.String()}
	}
	return &condition.Fault{Reason: condition.ReasonNodeReplaced, Message: text + ": turn that machine off, then run kubectl taint node " + node + " " + contract.TaintFormerMachineOff +
		"=:PreferNoSchedule until the VM has ended, or delete the Node"}
}

// unconfirmed names the nodes on which a VM may run, the first of them.
func unconfirmed(hosts []*view.Host) string {
	var names []string
	for _, h := range hosts {
		if !h.Over(true) {
			names = append(names, h.NodeName)
		}
	}
	if more := len(names) - trouble.MaxMissing; more > 0 {
		return fmt.Sprintf("nodes %s and %d more", strings.Join(names[:trouble.MaxMissing], ", "), more)
	}
	return "nodes " + strings.Join(names, ", ")
}

func silentNode(v *view.View, since time.Time) *condition.Fault {
	name, at := v.Pod.Spec.NodeName, since.UTC().Format(time.RFC3339)
	what := "node " + name + " is not ready since " + at
	if v.Pod.Node.Ready == corev1.ConditionTrue {
		what = "node " + name + " has not been heard of since " + at
	}
	return &condition.Fault{Reason: condition.ReasonNodeUnresponsive, Message: what + "; the VM may still run there; it is started elsewhere when the node is deleted or tainted " + corev1.TaintNodeOutOfService}
}
