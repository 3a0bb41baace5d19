package machine

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

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
	if r.Observer.DataVolumes {
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
	err := r.Observer.Client.List(ctx, &all, client.InNamespace(claim.GetNamespace()), client.MatchingFields{byVolume: claim.GetName()})
	if err != nil {
		return requests // a cache fails only where it has no such index
	}
	for _, vm := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}})
	}
	return requests
}

// byType is the index of VMs by what they name as instancetype and preference and have not begun
// with.
const byType = "types"

// wantedTypes are those of a VM that it has not begun with, as kind and name.
func wantedTypes(vm *kubevirtv1.VirtualMachine) (all []string) {
	for _, r := range instancetype.References(vm) {
		if kind, known := r.Kind(); known && r.Revision() == "" {
			all = append(all, kind+"/"+r.Matcher.Name)
		}
	}
	return all
}

// typeKinds are watched, by their names alone: a VM may wait for one of them to be made.
func typeKinds() map[string]client.Object {
	return map[string]client.Object{
		instancetypev1.KindInstancetype:        &instancetypev1.VirtualMachineInstancetype{},
		instancetypev1.KindClusterInstancetype: &instancetypev1.VirtualMachineClusterInstancetype{},
		instancetypev1.KindPreference:          &instancetypev1.VirtualMachinePreference{},
		instancetypev1.KindClusterPreference:   &instancetypev1.VirtualMachineClusterPreference{},
	}
}

// Uncached are the kinds whose names alone are watched: a Reconciler's client has to read them from the API
// server, as a cache of the whole objects would be behind the watch of their names.
func Uncached() []client.Object { return slices.Collect(maps.Values(typeKinds())) }

// waiting returns the VMs that name an instancetype or preference of a kind and have not begun with
// it.
func (r *Reconciler) waiting(kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
		var all kubevirtv1.VirtualMachineList
		in := client.InNamespace(o.GetNamespace()) // none: all
		if err := r.Observer.Client.List(ctx, &all, in, client.MatchingFields{byType: kind + "/" + o.GetName()}); err != nil {
			return nil // a cache fails only where it has no such index
		}
		for _, vm := range all.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&vm)})
		}
		return requests
	})
}
