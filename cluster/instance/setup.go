package instance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/nodes"
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
