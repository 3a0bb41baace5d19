package instance

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// IndexPodClaim finds the pods of VMs, and those that fill claims, by the claims that they use.
const IndexPodClaim = "vmlet.pod-claim"

// podUses are those of a VM's pod, or of one that fills a claim; none of another's.
func podUses(p *corev1.Pod) []claimuse.Use {
	if view.InstanceOf(p) == "" && !claimuse.Fills(p) {
		return nil
	}
	return claimuse.OfPod(p, nil)
}

// podClaims are those of podUses.
func podClaims(o client.Object) (names []string) {
	for _, use := range podUses(o.(*corev1.Pod)) {
		names = append(names, use.Claim)
	}
	return names
}

// claimInUse is why an instance without a pod must wait: another VM uses one of its claims, or is about to, and both can't
// at the same time. nil: none does. Of two that have no pod yet the older one goes first, unless something else keeps
// that from having one, or it is passed: a VM that restarts would wait for as long as all those run that it gets on with. VMs
// that are made after the older one asked do wait for it, or it would never have its turn. Nobody waits for a younger one,
// and an instance with a pod waits for nobody, so that none waits for itself.
func claimInUse(vmi *kubevirtv1.VirtualMachineInstance, users []view.ClaimUser) *condition.Fault {
	for _, own := range claimuse.OfInstance(vmi) {
		for _, u := range users {
			at := slices.IndexFunc(usesOf(u), own.Excludes)
			if at < 0 || !u.Started && !goesBefore(u, vmi) {
				continue
			}
			how := " is in use by "
			if !u.Started {
				how = " is first for "
			}
			return &condition.Fault{Reason: condition.ReasonClaimInUse, Message: "claim " + own.Claim + how + userName(u) + whyInUse(own, usesOf(u)[at])}
		}
	}
	return nil
}

// whyInUse says why two uses of a claim exclude each other, and what to do.
func whyInUse(own, other claimuse.Use) string {
	text := ", and a disk has one writer"
	switch {
	case !own.Writes:
		text = ", which may write to what this VM reads"
	case !other.Writes:
		text = ", and what is read there must not change"
	}
	text += ": this VM starts when that has ended. Stop that one, or give this one a claim of its own"
	if own.Shareable != other.Shareable {
		text += ". VMs share a claim if its disk is shareable in each of them"
	}
	return text
}

func usesOf(u view.ClaimUser) []claimuse.Use {
	if u.Instance == nil {
		return podUses(u.Pod)
	}
	return claimuse.OfInstance(u.Instance)
}

func userName(u view.ClaimUser) string {
	switch {
	case u.Instance != nil:
		return "VM " + u.Instance.Name
	case claimuse.Fills(u.Pod):
		text := "pod " + u.Pod.Name + ", which imports or copies a disk"
		if owner := metav1.GetControllerOf(u.Pod); owner != nil {
			text += " for VM " + owner.Name + " (its status says how far that is)"
		}
		return text
	}
	return "pod " + u.Pod.Name + " of VM " + view.InstanceOf(u.Pod)
}

// goesBefore: neither has a pod, and the other one may have it first. It may wait for a claim that this one
// does not know of.
func goesBefore(u view.ClaimUser, vmi *kubevirtv1.VirtualMachineInstance) bool {
	other, own := u.Instance, claimuse.OfInstance(vmi)
	waits := condition.Find(other.Status.Conditions, kubevirtv1.ConditionSynchronized)
	known := !slices.ContainsFunc(claimuse.OfInstance(other), func(theirs claimuse.Use) bool {
		return !slices.ContainsFunc(own, func(u claimuse.Use) bool { return u.Claim == theirs.Claim })
	})
	if u.Passed || other.DeletionTimestamp != nil || waits != nil && !(waits.Reason == condition.ReasonClaimInUse && known) {
		return false
	}
	if !other.CreationTimestamp.Equal(&vmi.CreationTimestamp) {
		return other.CreationTimestamp.Before(&vmi.CreationTimestamp)
	}
	return other.UID < vmi.UID
}

// observeUsers reads which others use the claims of an instance that has no pod yet.
func (r *Reconciler) observeUsers(ctx context.Context, o *view.View) error {
	if o.Pod != nil || o.Final() || o.Deleting() {
		return nil
	}
	var err error
	o.Users, err = r.claimUsers(ctx, o.Instance)
	return err
}

// claimUsers are those whose use of an instance's claims excludes the instance's, by their names; those that have ended
// are left out. Of a claim that many VMs read there may be thousands of objects: they are read where the cache has them.
func (r *Reconciler) claimUsers(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) ([]view.ClaimUser, error) {
	found := make(map[types.UID]view.ClaimUser)
	for _, use := range claimuse.OfInstance(vmi) {
		instances, pods, err := r.onClaim(ctx, vmi.Namespace, use.Claim)
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
		if final := u.Instance != nil && view.IsFinal(u.Instance.Status.Phase); uid != vmi.UID && !final && excludes(u, vmi) {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b view.ClaimUser) int { return strings.Compare(userName(a), userName(b)) })
	return all, nil
}

// pass notes which of the users the instance passes.
func (r *Reconciler) pass(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, users map[types.UID]view.ClaimUser) error {
	running := make(map[claimuse.Use]bool)
	for _, u := range users {
		if u.Started {
			for _, use := range usesOf(u) {
				running[use] = true
			}
		}
	}
	var since *metav1.Time
	for uid, u := range users {
		if u.Started || uid == vmi.UID || !excludes(u, vmi) || !heldBy(u, running) {
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

// heldBy: one of the uses of those that have pods excludes one of this one's.
func heldBy(u view.ClaimUser, running map[claimuse.Use]bool) bool {
	return slices.ContainsFunc(usesOf(u), func(own claimuse.Use) bool {
		for use := range running {
			if own.Excludes(use) {
				return true
			}
		}
		return false
	})
}

// machineSince is when an instance's VM was made, or the instance itself, which belongs to none.
func (r *Reconciler) machineSince(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*metav1.Time, error) {
	owner := metav1.GetControllerOf(vmi)
	if owner == nil {
		return &vmi.CreationTimestamp, nil
	}
	vm, err := get(ctx, r.Client, types.NamespacedName{Namespace: vmi.Namespace, Name: owner.Name}, new(kubevirtv1.VirtualMachine))
	if err != nil || vm == nil || vm.UID != owner.UID {
		return &vmi.CreationTimestamp, err
	}
	return &vm.CreationTimestamp, nil
}

// onClaim are the instances that name a claim, and the pods that use it. They are not to be changed.
func (r *Reconciler) onClaim(ctx context.Context, namespace, claim string) ([]kubevirtv1.VirtualMachineInstance, []corev1.Pod, error) {
	var instances kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &instances, client.InNamespace(namespace), client.MatchingFields{IndexClaim: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{IndexPodClaim: claim}, client.UnsafeDisableDeepCopy)
	return instances.Items, pods.Items, err
}

// excludes: the instance can't have one of its claims while this one does.
func excludes(u view.ClaimUser, vmi *kubevirtv1.VirtualMachineInstance) bool {
	theirs := usesOf(u)
	return slices.ContainsFunc(claimuse.OfInstance(vmi), func(own claimuse.Use) bool { return slices.ContainsFunc(theirs, own.Excludes) })
}

// createAlone makes the instance's pod while no other is made whose use of a claim excludes this one's, and asks the API
// server for others' pods, which the cache may not have yet: of two of them the one that was made later sees the other.
func (t *round) createAlone(ctx context.Context) error {
	vmi := t.o.Instance
	done, alone := t.Making.Begin(vmi.Namespace, claimuse.OfInstance(vmi))
	if !alone {
		t.again = soon
		t.o.Fault = &condition.Fault{Reason: condition.ReasonClaimInUse, Message: "another pod with a claim of this VM's is being made at this moment: it is looked at again"}
		return nil
	}
	defer done()
	var err error
	if t.o.Users, err = t.claimUsers(ctx, vmi); err != nil {
		return err
	}
	for i := range t.o.Users {
		u := &t.o.Users[i]
		if u.Started {
			continue
		}
		if u.Pod, err = t.ownPod(ctx, u.Instance); err != nil {
			return err
		}
		u.Started = u.Pod != nil
	}
	imports, err := t.imports(ctx, vmi)
	if err != nil {
		return err
	}
	t.o.Users = append(t.o.Users, imports...)
	if claimInUse(vmi, t.o.Users) != nil {
		return nil // the next step says so
	}
	return t.create(ctx)
}

// imports are the pods that fill claims, as the API server has them, whose use of a claim excludes the instance's.
func (r *Reconciler) imports(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (all []view.ClaimUser, err error) {
	if len(claimuse.OfInstance(vmi)) == 0 {
		return nil, nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{contract.LabelApp: contract.LabelAppImporter}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if u := (view.ClaimUser{Pod: &pods.Items[i], Started: true}); !claimuse.Ended(u.Pod) && excludes(u, vmi) {
			all = append(all, u)
		}
	}
	return all, nil
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
	for _, use := range usesOf(u) {
		instances, _, err := r.onClaim(ctx, o.GetNamespace(), use.Claim)
		if err != nil {
			return nil
		}
		if at := slices.IndexFunc(instances, func(vmi kubevirtv1.VirtualMachineInstance) bool { return vmi.UID == uid }); at >= 0 {
			u.Instance = &instances[at] // it knows better than its pod what is only read
		}
		for i := range instances {
			if other := (&view.View{Instance: &instances[i]}); other.NeverHadPod() && other.Instance.UID != uid && excludes(u, other.Instance) {
				requests = append(requests, request(o.GetNamespace(), other.Instance.Name))
			}
		}
	}
	return requests
}
