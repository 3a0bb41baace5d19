package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// defaultBurst is how many instances of a set are made or removed in one go, as KubeVirt has it.
const defaultBurst = 250

const (
	// workers is how many sets are reconciled at the same time.
	workers = 4
	// soon is when a set is looked at again of which something has changed since it was read.
	soon = time.Second
	// patience is the most time until what has failed is tried again.
	patience = time.Minute
	// roundPatience is how long one call of Reconcile may take: for 250 instances on a slow API server.
	roundPatience = 5 * time.Minute
)

// Reconciler makes VirtualMachineInstanceReplicaSets what their specs say. Its fields are set before its first use and
// not changed; it may then be used concurrently.
type Reconciler struct {
	// Client writes, and reads from caches.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Events takes the sets' events.
	Events events.EventRecorder
	// Burst is how many instances of a set are made or removed in one go; 0: 250.
	Burst int
	// Now is [time.Now].
	Now func() time.Time
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("virtualmachineinstancereplicaset").For(&kubevirtv1.VirtualMachineInstanceReplicaSet{}).
		Watches(&kubevirtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.setOf)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: roundPatience,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](patience/1000, patience),
		}).Complete(r)
}

// setOf returns the set that owns an instance, or those that may adopt it.
func (r *Reconciler) setOf(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	to := func(name string) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		if owner.Kind == kubevirtv1.KindReplicaSet {
			to(owner.Name)
		}
		return requests
	}
	var all kubevirtv1.VirtualMachineInstanceReplicaSetList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has started does not fail
	}
	for i := range all.Items {
		if selector, err := metav1.LabelSelectorAsSelector(all.Items[i].Spec.Selector); err == nil && selector.Matches(labels.Set(o.GetLabels())) {
			to(all.Items[i].Name)
		}
	}
	return requests
}

// Reconcile takes a set one step further. It may be called for a set that is not there.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := r.observe(ctx, r.Client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := decide(o)
	if d.acts() {
		// What was made a moment ago may not be in the cache yet.
		if o, err = r.observe(ctx, r.Live, request.NamespacedName); err != nil {
			return reconcile.Result{}, err
		}
		d = decide(o)
	}
	failed := r.carryOut(ctx, o, d)
	if apierrors.HasStatusCause(failed, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil // the set's own deletion follows
	}
	if failed != nil && !changed(failed) {
		const most = 1024
		o.failed = fmt.Sprintf("%.*s", most, failed.Error())
		d = decide(o)
	}
	err = r.report(ctx, o, d)
	switch {
	case changed(failed), changed(err):
		return reconcile.Result{RequeueAfter: soon}, nil
	case d.acts():
		return reconcile.Result{RequeueAfter: soon}, errors.Join(failed, err)
	}
	return reconcile.Result{}, errors.Join(failed, err)
}

// changed: what was decided on is not so any more.
func changed(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

func (r *Reconciler) observe(ctx context.Context, from client.Reader, name types.NamespacedName) (observed, error) {
	o := observed{burst: cmp.Or(r.Burst, defaultBurst), now: r.Now()}
	set := new(kubevirtv1.VirtualMachineInstanceReplicaSet)
	if err := from.Get(ctx, name, set); err != nil {
		return o, client.IgnoreNotFound(err)
	}
	o.set = set
	var all kubevirtv1.VirtualMachineInstanceList
	if err := from.List(ctx, &all, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return o, fmt.Errorf("list instances of VMs: %w", err)
	}
	for i := range all.Items {
		o.instances = append(o.instances, &all.Items[i])
	}
	return o, nil
}

// carryOut does what was decided. After an instance that can't be made no other is tried: it would fail as well.
func (r *Reconciler) carryOut(ctx context.Context, o observed, d decision) (failed error) {
	if d.tell != "" {
		r.Events.Eventf(o.set, nil, corev1.EventTypeNormal, d.tell, d.tell, "The set %s", map[string]string{reasonPaused: "is paused", reasonResumed: "goes on"}[d.tell])
	}
	for _, vmi := range d.adopt {
		failed = cmp.Or(failed, r.own(ctx, vmi, slices.Concat(vmi.OwnerReferences, []metav1.OwnerReference{ownedBy(o.set)})))
	}
	for _, vmi := range d.release {
		var others []metav1.OwnerReference
		for _, owner := range vmi.OwnerReferences {
			if owner.UID != o.set.UID {
				others = append(others, owner)
			}
		}
		failed = cmp.Or(failed, r.own(ctx, vmi, others))
	}
	for _, vmi := range d.remove {
		err := r.Client.Delete(ctx, vmi, client.Preconditions{UID: &vmi.UID})
		if err == nil {
			r.event(o, corev1.EventTypeNormal, reasonDeleted, "Deleted instance %s", vmi.Name)
		}
		failed = cmp.Or(failed, client.IgnoreNotFound(err))
	}
	for range d.create {
		vmi := o.instance()
		if err := r.Client.Create(ctx, vmi); err != nil {
			err = fmt.Errorf("create an instance: %w", err)
			if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				r.event(o, corev1.EventTypeWarning, reasonFailed, "%v", err)
			}
			return cmp.Or(failed, err)
		}
		r.event(o, corev1.EventTypeNormal, reasonCreated, "Created instance %s", vmi.Name)
	}
	return failed
}

func (r *Reconciler) event(o observed, kind, reason, format string, args ...any) {
	const most = 1000 // of the 1024 bytes that a note may have
	r.Events.Eventf(o.set, nil, kind, reason, reason, "%.*s", most, fmt.Sprintf(format, args...))
}

// own writes the owners of an instance, if it is as it was observed.
func (r *Reconciler) own(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, owners []metav1.OwnerReference) error {
	to := vmi.DeepCopy()
	to.OwnerReferences = owners
	return r.Client.Patch(ctx, to, client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{}))
}

func (r *Reconciler) report(ctx context.Context, o observed, d decision) error {
	if d.status == nil {
		return nil
	}
	to := o.set.DeepCopy()
	to.Status = *d.status
	return r.Client.Status().Patch(ctx, to, client.MergeFromWithOptions(o.set, client.MergeFromWithOptimisticLock{}))
}

func ownedBy(set *kubevirtv1.VirtualMachineInstanceReplicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: kubevirtv1.KindReplicaSet})
}
