package instance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
)

// workers is how many instances are worked on at a time; each waits for the API server most
// of the time.
const workers = 16

// patience is the most time until what has failed is tried again, such as a pod whose
// ServiceAccount is missing: anyone who creates it should not have to wait longer.
const patience = time.Minute

// roundPatience is how long one call of Reconcile may take.
const roundPatience = 2 * time.Minute

// Setup adds the controller to a manager. changed has the pods whose agent has said
// something new, or whose agent was lost or is heard again.
// saved and called have the instances of whose saves, or other calls, something new is known.
func (r *Reconciler) Setup(m manager.Manager, changed <-chan nodes.PodKey, saved, called <-chan types.NamespacedName) error {
	for _, i := range observe.Indexes() {
		if err := m.GetFieldIndexer().IndexField(context.Background(), i.Object, i.Field, i.Values); err != nil {
			return err
		}
	}
	return builder.ControllerManagedBy(m).
		Named("instance").
		For(&kubevirtv1.VirtualMachineInstance{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofUser)).
		Watches(&kubevirtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.ofUser)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(nodeChanges())).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go r.follow(ctx, changed, queue)
			go followCalls(ctx, saved, queue)
			go followCalls(ctx, called, queue)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: roundPatience, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](patience/1000, patience)}).
		Complete(r)
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// ofPod has the instance of a VM's pod, or of one that attaches a volume to such a pod.
func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	p := o.(*corev1.Pod)
	name := view.InstanceOf(p)
	if p.Labels[contract.LabelApp] == contract.LabelAppAttachment {
		name = p.Annotations[contract.AnnotationDomain]
	}
	if name != "" {
		return []reconcile.Request{request(o.GetNamespace(), name)}
	}
	return nil
}

func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	var all kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.MatchingFields{observe.IndexClaim: o.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		requests = append(requests, request(all.Items[i].Namespace, all.Items[i].Name))
	}
	return requests
}

func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	var all corev1.PodList
	if err := r.Client.List(ctx, &all, client.MatchingFields{observe.IndexNode: o.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		requests = append(requests, ofPod(ctx, &all.Items[i])...)
	}
	return requests
}

// nodeChanges are those of a node by which its VMs' pods end or become unknown. A kubelet
// writes its node's status every few minutes.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		was, is := view.NodeOf(e.ObjectOld.(*corev1.Node)), view.NodeOf(e.ObjectNew.(*corev1.Node))
		return was.Ready != is.Ready || was.OutOfService != is.OutOfService || was.FormerOff != is.FormerOff || was.ShuttingDown != is.ShuttingDown ||
			view.Replaces(is.Machine, was.Machine)
	}}
}

// followCalls has instances looked at of whose calls something new is known.
func followCalls(ctx context.Context, called <-chan types.NamespacedName, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case vm := <-called:
			queue.Add(reconcile.Request{NamespacedName: vm})
		}
	}
}

// follow has instances looked at of whose pods something new is known.
func (r *Reconciler) follow(ctx context.Context, changed <-chan nodes.PodKey, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case key, open := <-changed:
			if !open {
				return
			}
			p, err := observe.Get(ctx, r.Client, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, new(corev1.Pod))
			if err != nil || p == nil {
				continue // the pod's own events come in time
			}
			for _, request := range ofPod(ctx, p) {
				queue.Add(request)
			}
		}
	}
}
