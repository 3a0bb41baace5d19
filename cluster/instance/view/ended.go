package view

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HeardPatience is how long an agent may take to be heard, as it was started just now, or the
// controller was: it takes up its VMs within 30 s, and is connected to again within 15 s.
const HeardPatience = time.Minute

// Lost: nothing of the node's pods can run any more, as somebody who must know has said.
// Kubernetes acts on the taint only where the node is not ready, and so does vmlet.
func (n Node) Lost() bool {
	return !n.Exists || n.OutOfService && n.Ready != corev1.ConditionTrue
}

// LostNode: the pod's node is, or the machine that was it, as only a taint of its own says.
func (h *Host) LostNode() bool {
	if h.Replaced {
		return h.Node.FormerOff
	}
	return h.Node.Lost()
}

// Lost: the host is, by the word of somebody who must know, and its agent, which has had the time to
// be heard, does not contradict: of a Node that somebody deleted the machine may run on. While the
// agent is heard only its promise counts: it may not have taken up a VM that runs.
func (h *Host) Lost() bool {
	return h.LostNode() && !h.Report.Current && !h.Denied && h.Report.Silence >= HeardPatience
}

// Lives: the agent says that the VM runs, or may.
func (h *Host) Lives() bool { return h.Denied || h.Report.Current && MayRun(h.Report.VM) }

// Over: no VM of the pod runs on the host, nor will. Of a pod that is gone the agent is asked before
// a lost node is believed: it is not listened to for such pods. The promise of another machine's agent
// counts when the first machine is lost.
func (h *Host) Over(gone bool) bool {
	return !h.Lives() && (h.Promised && (!h.Replaced || h.LostNode()) || h.Lost() && (h.Asked || !gone))
}

// Stray: the pod is gone, and may have been bound to a node after it was seen last.
func (p *Pod) Stray() bool { return p.Gone && !p.Bound() && !p.Deleting() }

// Ended: the pod's VM does not run and never will. This is the only thing that lets a VM
// start again. Whatever the kubelet says, the agent's report that the VM runs contradicts it.
func (p *Pod) Ended() bool {
	switch {
	case p.Lives():
		return false
	case ComputeEnd(p.Pod) != nil && !p.Replaced:
		return true
	case p.Stray():
		return p.Hosts != nil && !slices.ContainsFunc(p.Hosts, func(h *Host) bool { return !h.Over(true) })
	case !p.Bound():
		return p.Deleting() // the API server binds no pod that is being deleted
	}
	return p.Over(p.Gone)
}

// Silence is since when nobody has said that the pod's node works; zero: somebody does.
func (p *Pod) Silence(now time.Time) time.Time {
	n := p.Node
	switch {
	case !p.Bound() || !n.Exists:
		return time.Time{}
	case n.Ready == corev1.ConditionUnknown, n.Ready != corev1.ConditionTrue && !p.Report.Current:
		return n.Since
	case !p.Report.Current && !n.Renewed.IsZero() && !now.Before(n.LeaseDue()):
		return n.Renewed
	}
	return time.Time{}
}
