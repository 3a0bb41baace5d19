package instance

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
)

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

// ofUser has the instances that may have waited for another one, or for a pod: what is left of one, or one that fills a claim.
func (r *Reconciler) ofUser(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var u view.ClaimUser
	uid := o.GetUID()
	switch o := o.(type) {
	case *kubevirtv1.VirtualMachineInstance:
		u.Instance = o
	case *corev1.Pod:
		u.Pod, uid = o, cmp.Or(view.UIDOf(o.Labels), uid)
	}
	for _, use := range claims.UsesOf(u) {
		instances, _, err := r.Observer.OnClaim(ctx, o.GetNamespace(), use.Claim)
		if err != nil {
			return nil
		}
		if at := slices.IndexFunc(instances, func(vmi kubevirtv1.VirtualMachineInstance) bool { return vmi.UID == uid }); at >= 0 {
			u.Instance = &instances[at] // it knows better than its pod what is only read
		}
		for i := range instances {
			if other := (&view.View{Instance: &instances[i]}); other.NeverHadPod() && other.Instance.UID != uid && claims.Excludes(u, other.Instance) {
				requests = append(requests, request(o.GetNamespace(), other.Instance.Name))
			}
		}
	}
	return requests
}
