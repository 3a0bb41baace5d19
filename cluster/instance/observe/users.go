package observe

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// observeUsers reads which others use the claims of an instance that has no pod yet.
func (r *Observer) observeUsers(ctx context.Context, v *view.View) error {
	if v.Pod != nil || v.Final() || v.Deleting() {
		return nil
	}
	var err error
	v.Users, err = r.ClaimUsers(ctx, v.Instance)
	return err
}

// ClaimUsers are those whose use of an instance's claims excludes the instance's, by their names; those that have ended
// are left out. Of a claim that many VMs read there may be thousands of objects: they are read where the cache has them.
func (r *Observer) ClaimUsers(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) ([]view.ClaimUser, error) {
	found := make(map[types.UID]view.ClaimUser)
	for _, use := range claimuse.OfInstance(vmi) {
		instances, pods, err := r.OnClaim(ctx, vmi.Namespace, use.Claim)
		if err != nil {
			return nil, err
		}
		for i := range instances {
			other := &instances[i]
			_, _, has := view.Active(&other.Status)
			found[other.UID] = view.ClaimUser{Instance: other, Started: has}
		}
		for i := range pods {
			p := &pods[i]
			if claimuse.Ended(p) {
				continue
			}
			uid := cmp.Or(view.UIDOf(p.Labels), p.UID)
			u := found[uid]
			u.Pod, u.Started = p, true
			found[uid] = u
		}
	}
	if err := r.pass(ctx, vmi, found); err != nil {
		return nil, err
	}
	var all []view.ClaimUser
	for uid, u := range found {
		if final := u.Instance != nil && view.IsFinal(u.Instance.Status.Phase); uid != vmi.UID && !final && claims.Excludes(u, vmi) {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b view.ClaimUser) int { return strings.Compare(claims.UserName(a), claims.UserName(b)) })
	return all, nil
}

// pass notes which of the users the instance passes.
func (r *Observer) pass(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, users map[types.UID]view.ClaimUser) error {
	running := make(map[claimuse.Use]bool)
	for _, u := range users {
		if u.Started {
			for _, use := range claims.UsesOf(u) {
				running[use] = true
			}
		}
	}
	var since *metav1.Time
	for uid, u := range users {
		if u.Started || uid == vmi.UID || !claims.Excludes(u, vmi) || !claims.HeldBy(u, running) {
			continue
		}
		if since == nil {
			var err error
			if since, err = r.machineSince(ctx, vmi); err != nil {
				return err
			}
		}
		u.Passed = since.Before(&u.Instance.CreationTimestamp)
		users[uid] = u
	}
	return nil
}

// machineSince is when an instance's VM was made, or the instance itself, which belongs to none.
func (r *Observer) machineSince(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*metav1.Time, error) {
	owner := metav1.GetControllerOf(vmi)
	if owner == nil {
		return &vmi.CreationTimestamp, nil
	}
	vm, err := Get(ctx, r.Client, types.NamespacedName{Namespace: vmi.Namespace, Name: owner.Name}, new(kubevirtv1.VirtualMachine))
	if err != nil || vm == nil || vm.UID != owner.UID {
		return &vmi.CreationTimestamp, err
	}
	return &vm.CreationTimestamp, nil
}

// OnClaim are the instances that name a claim, and the pods that use it. They are not to be changed.
func (r *Observer) OnClaim(ctx context.Context, namespace, claim string) ([]kubevirtv1.VirtualMachineInstance, []corev1.Pod, error) {
	var instances kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &instances, client.InNamespace(namespace), client.MatchingFields{IndexClaim: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{IndexPodClaim: claim}, client.UnsafeDisableDeepCopy)
	return instances.Items, pods.Items, err
}

// Imports are the pods that fill claims, as the API server has them, whose use of a claim excludes the instance's.
func (r *Observer) Imports(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (all []view.ClaimUser, err error) {
	if len(claimuse.OfInstance(vmi)) == 0 {
		return nil, nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{contract.LabelApp: contract.LabelAppImporter}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if u := (view.ClaimUser{Pod: &pods.Items[i], Started: true}); !claimuse.Ended(u.Pod) && claims.Excludes(u, vmi) {
			all = append(all, u)
		}
	}
	return all, nil
}
