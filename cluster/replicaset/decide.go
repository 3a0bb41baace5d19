package replicaset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// observed is what is known of a set.
type observed struct {
	set *kubevirtv1.VirtualMachineInstanceReplicaSet
	// instances are those of its namespace.
	instances []*kubevirtv1.VirtualMachineInstance
	// burst is how many instances may be made or removed in one go.
	burst int
	now   time.Time
	// failed is what could not be done; empty: nothing.
	failed string
}

// decision is what is to be done.
type decision struct {
	// adopt are instances that become the set's, release those that do so no more.
	adopt, release []*kubevirtv1.VirtualMachineInstance
	// remove are the set's that have ended, or are too many.
	remove []*kubevirtv1.VirtualMachineInstance
	// create is how many are made.
	create int
	// status is to be written; nil: it is so already.
	status *kubevirtv1.VirtualMachineInstanceReplicaSetStatus
	// tell is the event about a set that was paused or goes on; empty: none.
	tell string
}

// acts: it is more than a status.
func (d decision) acts() bool {
	return len(d.adopt)+len(d.release)+len(d.remove)+d.create > 0
}

// Reasons of events and conditions, as KubeVirt spells them.
const (
	reasonPaused  = "SuccessfulPaused"
	reasonResumed = "SuccessfulResumed"
	reasonCreated = "SuccessfulCreate"
	reasonDeleted = "SuccessfulDelete"
	reasonFailed  = "FailedCreate"
	reasonStopped = "Paused"
)

// decide says what is to be done for a set.
func decide(o observed) (d decision) {
	if o.set == nil || o.set.DeletionTimestamp != nil || o.set.Spec.Template == nil {
		return d // garbage collection deletes what it owns
	}
	selector, err := metav1.LabelSelectorAsSelector(o.set.Spec.Selector)
	if err != nil || selector.Empty() {
		return d // admission refuses it
	}
	var active []*kubevirtv1.VirtualMachineInstance
	for _, vmi := range o.instances {
		owner := metav1.GetControllerOf(vmi)
		matches := selector.Matches(labels.Set(vmi.Labels))
		switch {
		case vmi.DeletionTimestamp != nil:
		case owner == nil && matches && !ended(vmi):
			d.adopt = append(d.adopt, vmi)
			active = append(active, vmi)
		case owner == nil || owner.UID != o.set.UID:
		case !matches:
			d.release = append(d.release, vmi)
		case ended(vmi):
			d.remove = append(d.remove, vmi)
		default:
			active = append(active, vmi)
		}
	}
	d.status, d.tell = o.status(active, selector.String())
	if o.set.Spec.Paused {
		d.adopt, d.release, d.remove = nil, nil, nil
		return d
	}
	d.remove = d.remove[:min(len(d.remove), o.burst)]
	switch missing := o.wanted() - len(active); {
	case len(d.adopt) > 0: // the set's first
	case missing > 0:
		d.create = min(missing, o.burst)
	case missing < 0:
		slices.SortStableFunc(active, func(a, b *kubevirtv1.VirtualMachineInstance) int {
			return cmp.Or(cmp.Compare(service(a), service(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		d.remove = append(d.remove, active[:min(-missing, max(o.burst-len(d.remove), 0))]...)
	}
	return d
}

// wanted is how many instances there are to be.
func (o observed) wanted() int {
	if n := o.set.Spec.Replicas; n != nil {
		return max(int(*n), 0)
	}
	return 1
}

// service is how much is lost if an instance goes.
func service(vmi *kubevirtv1.VirtualMachineInstance) int {
	switch {
	case vmi.Status.NodeName == "":
		return 0
	case !ready(vmi):
		return 1
	}
	return 2
}

// ended: its guest runs no more, and never will.
func ended(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == kubevirtv1.PhaseSucceeded || vmi.Status.Phase == kubevirtv1.PhaseFailed
}

func ready(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Status.Conditions, func(c kubevirtv1.Condition) bool {
		return c.Type == kubevirtv1.ConditionReady && c.Status == metav1.ConditionTrue
	})
}

// status returns the status as it is to be, and nil if it is; and what to tell of a pause.
func (o observed) status(active []*kubevirtv1.VirtualMachineInstance, selector string) (*kubevirtv1.VirtualMachineInstanceReplicaSetStatus, string) {
	was := o.set.Status
	to := was.DeepCopy()
	to.ObservedGeneration, to.Replicas, to.ReadyReplicas, to.LabelSelector = o.set.Generation, int32(len(active)), 0, selector
	for _, vmi := range active {
		if ready(vmi) {
			to.ReadyReplicas++
		}
	}
	paused := has(was.Conditions, kubevirtv1.ReplicaSetPaused)
	to.Conditions = o.condition(to.Conditions, kubevirtv1.ReplicaSetPaused, reasonStopped, map[bool]string{true: "The set is paused: it makes and removes no instance"}[o.set.Spec.Paused])
	to.Conditions = o.condition(to.Conditions, kubevirtv1.ReplicaSetFailure, reasonFailed, o.failed)
	tell := ""
	switch {
	case o.set.Spec.Paused && !paused:
		tell = reasonPaused
	case !o.set.Spec.Paused && paused:
		tell = reasonResumed
	}
	if equality.Semantic.DeepEqual(&was, to) {
		return nil, tell
	}
	return to, tell
}

func has(all []kubevirtv1.Condition, kind string) bool {
	return slices.ContainsFunc(all, func(c kubevirtv1.Condition) bool { return c.Type == kind })
}

// condition returns the conditions with one that says a message, and without it if there is none.
func (o observed) condition(all []kubevirtv1.Condition, kind, reason, message string) []kubevirtv1.Condition {
	i := slices.IndexFunc(all, func(c kubevirtv1.Condition) bool { return c.Type == kind })
	switch {
	case message == "" && i < 0:
	case message == "":
		all = slices.Delete(all, i, i+1)
	case i < 0:
		all = append(all, kubevirtv1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(o.now).Rfc3339Copy(),
		})
	default:
		all[i].Reason, all[i].Message = reason, message
	}
	return all
}

// instance is one that the set makes.
func (o observed) instance() *kubevirtv1.VirtualMachineInstance {
	template := o.set.Spec.Template.DeepCopy()
	vmi := &kubevirtv1.VirtualMachineInstance{Spec: template.Spec}
	vmi.Namespace, vmi.Labels, vmi.Annotations = o.set.Namespace, template.Labels, template.Annotations
	vmi.GenerateName = fmt.Sprintf("%.57s-", o.set.Name) // a label has 63 characters, of which the API server makes five
	vmi.OwnerReferences = []metav1.OwnerReference{ownedBy(o.set)}
	return vmi
}
