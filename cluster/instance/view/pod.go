package view

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/podend"
	"github.com/vmlet/vmlet/contract"
)

// Pod is a pod of a VM, with what is known of it beyond the object.
type Pod struct {
	*corev1.Pod
	// Gone: the object is not there any more. Of a pod that vanished before its VM had ended
	// the UID is left, and the node as the instance's status has it.
	Gone bool
	// Host is the node that the pod is bound to.
	Host
	// Hosts are all nodes that may have had a pod which is gone, and whose node nobody
	// noted; nil: they are not known.
	Hosts []*Host
	// Trouble is why it does not start, by its events; nil: they were not read, or don't say.
	Trouble *condition.Fault
	// Confirming: its agent, or those of Hosts, are asked in this round, or were before and have not
	// answered yet, whether the VM has ended.
	Confirming bool
	// Hurried: the agent was asked in this round to end the VM, or to end it sooner.
	Hurried bool
	// Resized: the agent was asked in this round to resize the guest.
	Resized bool
	// Directed: the agent was asked in this round to pause the guest, or to resume it, or the pod's readiness gate was opened.
	Directed bool
	// Relabelled: the pod was given the instance's labels in this round. A webhook may have
	// changed them again.
	Relabelled bool
}

// ComputeEnd is how the container that runs the VM has ended, by the kubelet's word: others
// write pods' phases, too, and nobody else the statuses of containers. nil: it may run, also if the
// kubelet says that it has terminated and doesn't know.
func ComputeEnd(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := ComputeStatus(p); c != nil {
		return podend.Container(c)
	}
	return nil
}

// UnseenEnd is what the kubelet says of a container that it has given up, and that may run; nil:
// it hasn't, or has seen the end.
func UnseenEnd(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := ComputeStatus(p); c != nil && podend.Container(c) == nil {
		return c.State.Terminated
	}
	return nil
}

// ComputeStatus is the status of the container that runs the VM; nil: the kubelet has not written one.
func ComputeStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for i, c := range p.Status.ContainerStatuses {
		if c.Name == contract.ContainerCompute {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// Runs: the kubelet has started the container, and has not said that it ended.
func (p *Pod) Runs() (since time.Time, is bool) {
	c := ComputeStatus(p.Pod)
	if c == nil || c.State.Running == nil {
		return time.Time{}, false
	}
	return c.State.Running.StartedAt.Time, true
}

// Bound: the pod has a node.
func (p *Pod) Bound() bool { return p.Spec.NodeName != "" }

// Deleting: the pod is being deleted.
func (p *Pod) Deleting() bool { return p.DeletionTimestamp != nil }

// Held: the pod has the finalizer that keeps it until its VM has ended.
func (p *Pod) Held() bool { return !p.Gone && slices.Contains(p.Finalizers, contract.FinalizerPod) }

// Terminal: somebody has written that all of the pod's containers have ended, which is no proof that its VM has.
func (p *Pod) Terminal() bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// Rejected: the kubelet takes the pod not at all, and started nothing of it.
func (p *Pod) Rejected() bool {
	return p.Bound() && p.Status.Phase == corev1.PodFailed && ComputeStatus(p.Pod) == nil
}

// PodCondition is a pod's condition by its type; nil: there is none.
func PodCondition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == of {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// InstanceOf is the name of the instance that a pod was made for; empty: it is no VM's pod.
// A pod whose owner was taken from it still has the annotation.
func InstanceOf(p *corev1.Pod) string {
	if p.Labels[contract.LabelApp] != contract.LabelAppLauncher || UIDOf(p.Labels) == "" {
		return ""
	}
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil:
		return p.Annotations[contract.AnnotationDomain]
	case owner.APIVersion == kubevirtv1.Group+"/"+kubevirtv1.Version && owner.Kind == "VirtualMachineInstance":
		return owner.Name
	}
	return ""
}

// UIDOf is the instance that a pod was made for.
func UIDOf(labels map[string]string) types.UID { return types.UID(labels[contract.LabelCreatedBy]) }
