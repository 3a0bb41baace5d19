package observe

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// Indexes of the cache that Client reads from.
const (
	// IndexInstance finds VMs' pods by their instance's name.
	IndexInstance = "vmlet.instance"
	// IndexNode finds VMs' pods by their node.
	IndexNode = "vmlet.node"
	// IndexClaim finds instances by the claims that they name.
	IndexClaim = "vmlet.claim"
	// IndexAttached finds pods that attach volumes by the UID of the pod that these are attached
	// to.
	IndexAttached = "vmlet.attached"
)

// IndexPodClaim finds the pods of VMs, and those that fill claims, by the claims that they use.
const IndexPodClaim = "vmlet.pod-claim"

// Index is one of the cache's.
type Index struct {
	Object client.Object
	Field  string
	Values client.IndexerFunc
}

// Indexes are those that the Reconciler's Client needs.
func Indexes() []Index {
	return []Index{
		{&corev1.Pod{}, IndexInstance, func(o client.Object) []string { return some(view.InstanceOf(o.(*corev1.Pod))) }},
		{&corev1.Pod{}, IndexNode, func(o client.Object) []string {
			p := o.(*corev1.Pod)
			if view.InstanceOf(p) == "" {
				return nil
			}
			return some(p.Spec.NodeName)
		}},
		{&corev1.Pod{}, IndexAttached, func(o client.Object) []string {
			p := o.(*corev1.Pod)
			if p.Labels[contract.LabelApp] != contract.LabelAppAttachment {
				return nil
			}
			return some(p.Labels[contract.LabelAttachedTo])
		}},
		{&corev1.Pod{}, IndexPodClaim, func(o client.Object) []string { return claims.OfPod(o.(*corev1.Pod)) }},
		{&kubevirtv1.VirtualMachineInstance{}, IndexClaim, func(o client.Object) []string {
			return claims.Names(o.(*kubevirtv1.VirtualMachineInstance))
		}},
	}
}

func some(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}
