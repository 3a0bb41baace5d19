package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// DefaultBurst is how many members of a pool are made, changed or removed in one go, as KubeVirt has it.
const DefaultBurst = 250

// Reconciler makes VirtualMachinePools what their specs say. Its fields are set before its first use and not
// changed; it may then be used concurrently.
type Reconciler struct {
	// Client writes, and reads from caches.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Events takes the pools' events.
	Events events.EventRecorder
	// DataVolumes says whether the cluster has the kinds of CDI.
	DataVolumes bool
	// Burst is how many members of a pool are made, changed or removed in one go; 0: DefaultBurst.
	Burst int
	// Now is [time.Now].
	Now func() time.Time

	history history
}

const (
	// workers is how many pools are reconciled at the same time.
	workers = 4
	// soon is when to look again at a pool that has changed since it was read.
	soon = time.Second
	// patience is the most time until what has failed is tried again.
	patience = time.Minute
	// roundPatience is how long one call of Reconcile may take: for 250 VMs on a slow API server.
	roundPatience = 5 * time.Minute
)

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(m ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(m).Named("virtualmachinepool").For(&poolv1.VirtualMachinePool{}).
		Watches(&kubevirtv1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.poolOf)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.poolOf)).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.poolsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: roundPatience,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](patience/1000, patience),
		})
	if r.DataVolumes {
		b = b.Watches(dataVolume(), handler.EnqueueRequestsFromMapFunc(r.poolOf))
	}
	return b.Complete(r)
}

func dataVolume() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: kindDataVolume})
	return u
}

// The kinds of disks that are kept.
const (
	kindDataVolume = "DataVolume"
	kindClaim      = "PersistentVolumeClaim"
)

// poolOf returns the pool that owns an object, or whose labels it has.
func (r *Reconciler) poolOf(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	to := func(name string) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	owner := metav1.GetControllerOf(o)
	if owner != nil && owner.Kind == poolv1.Kind {
		to(owner.Name)
	}
	uid := o.GetLabels()[contract.LabelPool]
	if uid == "" || owner != nil && string(owner.UID) == uid {
		return requests
	}
	var all poolv1.VirtualMachinePoolList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return requests // a cache that has started does not fail
	}
	for i := range all.Items {
		if string(all.Items[i].UID) == uid {
			to(all.Items[i].Name)
		}
	}
	return requests
}

// poolsOf returns all pools of the namespace of a PodDisruptionBudget: it may select the pods of any.
func (r *Reconciler) poolsOf(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var all poolv1.VirtualMachinePoolList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has started does not fail
	}
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}

// Reconcile takes a pool one step further. It may be called for a pool that is not there. A panic of one is
// caught by the caller, and touches no other.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := r.observe(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := decide(o)
	for _, e := range d.events {
		r.event(o.pool, e)
	}
	failed := r.carryOut(ctx, o, d.actions)
	switch {
	case apierrors.HasStatusCause(failed, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // the pool's own deletion follows
	case errors.Is(failed, errChanged):
		return reconcile.Result{RequeueAfter: soon}, nil
	case failed != nil:
		return reconcile.Result{}, errors.Join(failed, r.report(ctx, o, failed))
	}
	if d.again.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(d.again.Sub(r.Now()), time.Millisecond)}, nil
}

// report has the pool's status say what has failed.
func (r *Reconciler) report(ctx context.Context, o state, failed error) error {
	if apierrors.ReasonForError(failed) == metav1.StatusReasonUnknown {
		return nil // the API server is away
	}
	const most = 1024
	o.failed = fmt.Sprintf("%.*s", most, failed.Error())
	live := new(poolv1.VirtualMachinePool)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.pool), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.pool = live
	for _, a := range decide(o).actions {
		if w, is := a.(writeStatus); is {
			return r.writeStatus(ctx, o.pool, w.status)
		}
	}
	return nil
}

func (r *Reconciler) event(pool *poolv1.VirtualMachinePool, e event) {
	const most = 1000 // of the 1024 bytes that a note may have
	r.Events.Eventf(pool, nil, e.kind, e.reason, e.reason, "%.*s", most, e.note)
}
