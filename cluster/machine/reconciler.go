package machine

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// Reconciler makes VirtualMachines what their specs say. Its fields are set before its
// first use and not changed; it may then be used concurrently.
type Reconciler struct {
	// Client writes, and reads from caches.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Events takes the VMs' events.
	Events events.EventRecorder
	// Defaults fills what an instance leaves unset, by the cluster's present configuration,
	// as admission does.
	Defaults func(*kubevirtv1.VirtualMachineInstance)
	// Configuration is the cluster's as it is now; nil: that of a cluster without one.
	Configuration func() configuration.Configuration
	// Uses knows which pods used VMs' disks since they were saved.
	Uses ClaimUses
	// DataVolumes says whether the cluster has the kinds of CDI.
	DataVolumes bool
	// Now is [time.Now].
	Now func() time.Time
}

// workers is how many VMs are reconciled at the same time: each waits for the API server
// most of the time.
const workers = 10

// patience is the most time until what has failed is tried again: anyone who mends it should not
// have to wait longer.
const patience = time.Minute

// roundPatience is how long one call of Reconcile may take.
const roundPatience = 2 * time.Minute

// Setup adds the controller to a manager. used has the VMs of whose disks something new is known.
func (r *Reconciler) Setup(ctx context.Context, m ctrl.Manager, used <-chan types.NamespacedName) error {
	if err := m.GetFieldIndexer().IndexField(ctx, &kubevirtv1.VirtualMachine{}, byVolume, func(o client.Object) []string {
		return usedClaims(o.(*kubevirtv1.VirtualMachine))
	}); err != nil {
		return err
	}
	if err := m.GetFieldIndexer().IndexField(ctx, &kubevirtv1.VirtualMachine{}, byType, func(o client.Object) []string {
		return wantedTypes(o.(*kubevirtv1.VirtualMachine))
	}); err != nil {
		return err
	}
	// An instance has its VM's name; another's that has it is of interest, too.
	b := ctrl.NewControllerManagedBy(m).Named("virtualmachine").For(&kubevirtv1.VirtualMachine{}).
		Watches(&kubevirtv1.VirtualMachineInstance{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.users)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go followUses(ctx, used, queue)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: roundPatience, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](patience/1000, patience)})
	for kind, object := range typeKinds() {
		b = b.Watches(object, r.waiting(kind), builder.OnlyMetadata)
	}
	if r.DataVolumes {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(cdi("DataVolume"))
		b = b.Watches(u, handler.EnqueueRequestsFromMapFunc(r.users))
	}
	return b.Complete(r)
}

// followUses has VMs looked at of whose disks something new is known.
func followUses(ctx context.Context, used <-chan types.NamespacedName, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case vm := <-used:
			queue.Add(reconcile.Request{NamespacedName: vm})
		}
	}
}

// byVolume is the index of VMs by the claims that they use.
const byVolume = "volumes"

// users returns the VMs that use a claim, or the claim of a DataVolume.
func (r *Reconciler) users(ctx context.Context, claim client.Object) (requests []reconcile.Request) {
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == run.MachineKind {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: claim.GetNamespace(), Name: owner.Name}})
	}
	var all kubevirtv1.VirtualMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(claim.GetNamespace()), client.MatchingFields{byVolume: claim.GetName()})
	if err != nil {
		return requests // a cache fails only where it has no such index
	}
	for _, vm := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}})
	}
	return requests
}

func (r *Reconciler) configuration() configuration.Configuration {
	if r.Configuration == nil {
		return configuration.Default()
	}
	return r.Configuration()
}

// usedClaims returns the names of all claims that a VM uses, makes, or has its memory on.
func usedClaims(vm *kubevirtv1.VirtualMachine) []string {
	names := append(volumeNames(vm), hibernation.NamedClaim(vm))
	if s := vm.Status.HibernationStatus; s != nil {
		names = append(names, s.ClaimName)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// volumeNames returns the names of all claims that a VM uses or makes, sorted.
func volumeNames(vm *kubevirtv1.VirtualMachine) []string {
	names := run.ClaimNames(vm)
	for _, t := range vm.Spec.DataVolumeTemplates {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Reconcile takes a VM one step further. It may be called for a VM that is not there.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	// Caches say whether there may be something to do, the API server what it is: a cache
	// lags behind this controller's own writes, and after a change of leaders behind those
	// of another one.
	o, err := r.observe(ctx, r.Client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if d := decide(o); len(d.actions) == 0 {
		return r.wait(d), nil
	}
	if o, err = r.observe(ctx, r.Live, request.NamespacedName); err != nil {
		return reconcile.Result{}, err
	}
	d := decide(o)
	if why, err := r.spoiled(ctx, d); err != nil {
		return reconcile.Result{}, err
	} else if why != nil {
		o.Spoiled = why
		d = decide(o)
	}
	a, err := r.carryOut(ctx, o.vm, d.actions)
	if _, claim := a.(action.CreateClaim); claim && apierrors.IsForbidden(err) && d.starts() {
		r.event(o.vm, action.Warning(reasonFailedCreate, "The VM starts without a claim for its memory: %v", err))
		o.Claimless = true
		d = decide(o)
		a, err = r.carryOut(ctx, o.vm, d.actions)
	}
	switch {
	case errors.Is(err, errChanged):
		return reconcile.Result{RequeueAfter: soon}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // the VM's own deletion follows
	case err != nil:
		return reconcile.Result{}, r.tell(ctx, o, a, err)
	}
	return r.wait(d), nil
}

// carryOut returns the first action that fails, and its error.
func (r *Reconciler) carryOut(ctx context.Context, vm *kubevirtv1.VirtualMachine, all []action.Action) (first action.Action, failed error) {
	for _, a := range all {
		if failed != nil && !action.Independent(a) {
			break
		}
		err := r.act(ctx, vm, a)
		if err == nil || failed != nil {
			continue
		}
		if first, failed = a, err; !action.Independent(a) {
			break
		}
	}
	return first, failed
}

// wait returns when the VM is looked at again.
func (r *Reconciler) wait(d decision) reconcile.Result {
	if d.again.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(d.again.Sub(r.Now()), time.Millisecond)}
}

// tell has the VM's status say what has failed. It returns the error of that.
func (r *Reconciler) tell(ctx context.Context, o observed, a action.Action, failed error) error {
	if o.failed = explain(a, failed); o.failed == nil {
		return failed
	}
	for _, a := range decide(o).actions {
		if w, is := a.(action.WriteStatus); is {
			return errors.Join(failed, r.act(ctx, o.vm, w))
		}
	}
	return failed
}
