package pool

import (
	"context"
	"fmt"
	"maps"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

type (
	// writeBudget makes the pool's PodDisruptionBudget what to says; was is nil where there is none.
	writeBudget struct{ was, to *policyv1.PodDisruptionBudget }
	// deleteBudget deletes it.
	deleteBudget struct {
		budget *policyv1.PodDisruptionBudget
		event  event
	}
)

// budgetName is that of a pool's PodDisruptionBudget: users name theirs as the pool.
func budgetName(pool string) string { return pool + "-pool" }

// budgets reads the PodDisruptionBudgets of the pool's namespace: its own, and one of somebody else's that selects
// pods of its members.
func (r *Reconciler) budgets(ctx context.Context, o *state) error {
	var all policyv1.PodDisruptionBudgetList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	for i := range all.Items {
		b := &all.Items[i]
		switch {
		case metav1.IsControlledBy(b, o.pool):
			o.budget = b
		case b.Name == budgetName(o.pool.Name), o.selects(b):
			o.otherBudget = b.Name
		}
	}
	return nil
}

// selects tells whether a budget selects the pod of a member, or of one that the pool makes next.
func (o state) selects(b *policyv1.PodDisruptionBudget) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil || b.DeletionTimestamp != nil {
		return false
	}
	pod := func(name string, of map[string]string) labels.Set {
		own := map[string]string{contract.LabelApp: contract.LabelAppLauncher, contract.LabelInstanceID: name, contract.LabelInstanceName: name}
		all := maps.Clone(labels.Set(of))
		if all == nil {
			all = make(labels.Set)
		}
		maps.Copy(all, own)
		return all
	}
	for _, m := range o.serving() {
		if t := m.vm.Spec.Template; t != nil && selector.Matches(pod(m.vm.Name, t.Labels)) {
			return true
		}
	}
	template := o.pool.Spec.VirtualMachineTemplate
	if template == nil || template.Spec.Template == nil {
		return false
	}
	own := map[string]string{contract.LabelPool: string(o.pool.UID)}
	return selector.Matches(pod("", with(template.Spec.Template.Labels, own)))
}

// keepBudget has evictions leave as many members as updates do. A percentage, or a number that may be away, would
// refuse them all: the disruption controller can't count the pods of VMs. A pod of two budgets can't be evicted at all:
// where somebody else has one, the pool has none.
func keepBudget(o state, d *decision) {
	due := 0
	for _, m := range o.serving() {
		if m.due() {
			due++
		}
	}
	least := min(due, o.wanted()) - o.mayBeUnavailable()
	switch off := o.pool.Spec.DisruptionBudget == poolv1.DisruptionBudgetNone; {
	case o.otherBudget != "" && o.budget != nil:
		d.do(deleteBudget{o.budget, normal(reasonBudget, "Deleted PodDisruptionBudget %s: %s selects the same pods, and a pod of two budgets can't be evicted", o.budget.Name, o.otherBudget)})
	case (off || least <= 0) && o.budget != nil:
		d.do(deleteBudget{o.budget, event{}})
	case off, least <= 0, o.otherBudget != "":
	default:
		to := o.budgetOf(int32(least))
		if o.budget == nil || !equality.Semantic.DeepEqual(o.budget.Spec, to.Spec) {
			d.do(writeBudget{o.budget, to})
		}
	}
}

func (o state) budgetOf(least int32) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{}
	if o.budget != nil {
		b = o.budget.DeepCopy()
	} else {
		b.Namespace, b.Name = o.pool.Namespace, budgetName(o.pool.Name)
		b.Labels = map[string]string{contract.LabelPool: string(o.pool.UID)}
		b.OwnerReferences = []metav1.OwnerReference{ownedBy(o.pool)}
	}
	b.Spec = policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(least)),
		Selector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{contract.LabelPool: string(o.pool.UID)},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: contract.LabelPoolStandby, Operator: metav1.LabelSelectorOpDoesNotExist}},
		},
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow), // a guest that serves nobody holds up no drain
	}
	return b
}

func (r *Reconciler) writeBudget(ctx context.Context, pool *poolv1.VirtualMachinePool, a writeBudget) error {
	if a.was != nil {
		return r.Client.Patch(ctx, a.to.DeepCopy(), changed(a.was))
	}
	if err := r.Client.Create(ctx, a.to.DeepCopy()); err != nil {
		return r.failed(pool, reasonBudget, "create PodDisruptionBudget "+a.to.Name, err)
	}
	return nil
}

func (r *Reconciler) deleteBudget(ctx context.Context, pool *poolv1.VirtualMachinePool, a deleteBudget) error {
	exactly := client.Preconditions{UID: &a.budget.UID}
	if err := r.Client.Delete(ctx, a.budget.DeepCopy(), exactly); err != nil {
		return err
	}
	if a.event.reason != "" {
		r.event(pool, a.event)
	}
	return nil
}
