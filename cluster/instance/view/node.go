package view

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/sentences"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/machineid"
)

// Node is what is known of the node that a pod is bound to.
type Node struct {
	Exists       bool
	Ready        corev1.ConditionStatus
	Since        time.Time // since when Ready has been so
	OutOfService bool      // it carries the taint
	FormerOff    bool      // it carries the taint that the machine which it was before is off
	// ShuttingDown: its kubelet ends all pods, which nobody deletes.
	ShuttingDown bool
	// Renewed is when the kubelet renewed the node's Lease; zero: not asked, or it has none.
	Renewed time.Time
	// Seen is when this process first read that time.
	Seen time.Time
	// Labels are the node's. They are not to be changed.
	Labels map[string]string
	// Machine is which machine it is; nil: that is not known.
	Machine *kubevirtv1.NodeMachine
}

// LeaseLimit is how long a node whose agent is not heard may leave its Lease as it is. The
// kubelet renews it every 10 s.
const LeaseLimit = 40 * time.Second

// leasePatience is how long a Lease has to stay the same under this process's eyes besides: the
// time in it is by the node's clock, which may be behind.
const leasePatience = 15 * time.Second

// LeaseDue is when a Lease that stays as it is means that nobody hears of the node; zero: its
// Lease was not asked for.
func (n Node) LeaseDue() time.Time {
	old, unchanged := n.Renewed.Add(LeaseLimit), n.Seen.Add(leasePatience)
	switch {
	case n.Renewed.IsZero():
		return time.Time{}
	case old.Before(unchanged):
		return unchanged
	}
	return old
}

// NodeOf is what a Node says.
func NodeOf(o *corev1.Node) Node {
	n := Node{Exists: true, Ready: corev1.ConditionUnknown, Since: o.CreationTimestamp.Time, Labels: o.Labels, Machine: MachineOf(o)}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready, n.Since = c.Status, c.LastTransitionTime.Time
			n.ShuttingDown = sentences.ShutsDown(&c)
		}
	}
	for _, t := range o.Spec.Taints {
		n.OutOfService = n.OutOfService || t.Key == corev1.TaintNodeOutOfService
		n.FormerOff = n.FormerOff || t.Key == contract.TaintFormerMachineOff
	}
	return n
}

// MachineOf is which machine a Node is; nil: it doesn't say. Where the firmware has no UUID the kubelet takes the machine
// id in its place, which another system on the same machine does not have, and which some systems make again with each boot.
func MachineOf(o *corev1.Node) *kubevirtv1.NodeMachine {
	plain := func(id string) string { return strings.ToLower(strings.ReplaceAll(id, "-", "")) }
	info := o.Status.NodeInfo
	identity := machineid.Of(info.SystemUUID)
	if identity == "" || plain(info.SystemUUID) == plain(info.MachineID) {
		return nil
	}
	return &kubevirtv1.NodeMachine{NodeUID: o.UID, Identity: identity}
}

// Replaces: a Node is another machine than it was. By deleting the Node the administrator has said that nothing runs there
// any more, and the one that is there now is as good as any.
func Replaces(now, before *kubevirtv1.NodeMachine) bool {
	return now != nil && before != nil && now.NodeUID == before.NodeUID && before.Identity != "" && now.Identity != before.Identity
}
