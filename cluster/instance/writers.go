package instance

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// createAlone makes the instance's pod while no other is made whose use of a claim excludes this one's, and asks the API
// server for others' pods, which the cache may not have yet: of two of them the one that was made later sees the other.
func (t podWriter) createAlone(ctx context.Context) error {
	vmi := t.o.Instance
	done, alone := t.Making.Begin(vmi.Namespace, claimuse.OfInstance(vmi))
	if !alone {
		t.again = soon
		t.o.Fault = &condition.Fault{Reason: condition.ReasonClaimInUse, Message: "another pod with a claim of this VM's is being made at this moment: it is looked at again"}
		return nil
	}
	defer done()
	var err error
	if t.o.Users, err = t.Observer.ClaimUsers(ctx, vmi); err != nil {
		return err
	}
	for i := range t.o.Users {
		u := &t.o.Users[i]
		if u.Started {
			continue
		}
		if u.Pod, err = t.Observer.OwnPod(ctx, u.Instance); err != nil {
			return err
		}
		u.Started = u.Pod != nil
	}
	imports, err := t.Observer.Imports(ctx, vmi)
	if err != nil {
		return err
	}
	t.o.Users = append(t.o.Users, imports...)
	if claims.InUse(vmi, t.o.Users) != nil {
		return nil // the next step says so
	}
	return t.create(ctx)
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
