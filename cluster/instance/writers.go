package instance

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
)

// IndexPodClaim finds VMs' pods by the claims that they may write to.
const IndexPodClaim = "vmlet.pod-claim"

// writer is another VM that may write to claims of the instance's namespace.
type writer struct {
	// instance, or nil where only its pod is left.
	instance *kubevirtv1.VirtualMachineInstance
	// pod whose guest may run; nil: there is none.
	pod *corev1.Pod
	// started: it has a pod, or its status knows of one.
	started bool
}

// writtenClaims are the claims that the guest may write to, in the order of the volumes.
func writtenClaims(vmi *kubevirtv1.VirtualMachineInstance) (names []string) {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		name := convert.ClaimName(v)
		if name == "" || v.Ephemeral != nil || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly || slices.Contains(names, name) {
			continue
		}
		if slices.ContainsFunc(vmi.Spec.Domain.Devices.Disks, func(d kubevirtv1.Disk) bool { return d.Name == v.Name && writable(&d) }) {
			names = append(names, name)
		}
	}
	return names
}

func writable(d *kubevirtv1.Disk) bool {
	return d.CDROM == nil && (d.Disk == nil || !d.Disk.ReadOnly)
}

// podClaims are the claims that a VM's pod may write to; none of another's.
func podClaims(p *corev1.Pod) (names []string) {
	if instanceOf(p) == "" {
		return nil
	}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && !v.PersistentVolumeClaim.ReadOnly {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// claimInUse is why an instance without a pod must wait: another VM writes to one of its claims, or is about to. nil:
// none does. Of two that have no pod yet the older one goes first, unless something else keeps that from having
// one. Nobody waits for a younger one, and who has a pod waits for nobody, so that none waits for itself.
func claimInUse(vmi *kubevirtv1.VirtualMachineInstance, writers []writer) *fault {
	for _, claim := range writtenClaims(vmi) {
		for _, w := range writers {
			if !slices.Contains(w.claims(), claim) || !w.started && !w.goesBefore(vmi) {
				continue
			}
			return &fault{reasonClaimInUse, "claim " + claim + " is in use by " + w.name() + ", and a disk has one writer: " +
				"this VM starts when that has ended. Stop that one, or give this one a claim of its own"}
		}
	}
	return nil
}

func (w writer) claims() []string {
	if w.instance == nil {
		return podClaims(w.pod)
	}
	return writtenClaims(w.instance)
}

func (w writer) name() string {
	if w.instance == nil {
		return "pod " + w.pod.Name + " of VM " + instanceOf(w.pod)
	}
	return "VM " + w.instance.Name
}

// goesBefore: neither has a pod, and the other one may have it first. It may wait for a claim that this one
// does not know of.
func (w writer) goesBefore(vmi *kubevirtv1.VirtualMachineInstance) bool {
	other, own := w.instance, writtenClaims(vmi)
	waits := find(other.Status.Conditions, kubevirtv1.ConditionSynchronized)
	known := !slices.ContainsFunc(writtenClaims(other), func(claim string) bool { return !slices.Contains(own, claim) })
	if other.DeletionTimestamp != nil || waits != nil && !(waits.Reason == reasonClaimInUse && known) {
		return false
	}
	if !other.CreationTimestamp.Equal(&vmi.CreationTimestamp) {
		return other.CreationTimestamp.Before(&vmi.CreationTimestamp)
	}
	return other.UID < vmi.UID
}

// observeWriters reads which other VMs may write to the claims of an instance that has no pod yet.
func (r *Reconciler) observeWriters(ctx context.Context, o *observed) error {
	if o.pod != nil || o.final() || o.deleting() {
		return nil
	}
	var err error
	o.writers, err = r.writers(ctx, o.instance)
	return err
}

// writers of an instance's claims, by their names; those that have ended are left out.
func (r *Reconciler) writers(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) ([]writer, error) {
	found := make(map[types.UID]writer)
	for _, claim := range writtenClaims(vmi) {
		var instances kubevirtv1.VirtualMachineInstanceList
		if err := r.Client.List(ctx, &instances, client.InNamespace(vmi.Namespace), client.MatchingFields{IndexClaim: claim}); err != nil {
			return nil, err
		}
		for i := range instances.Items {
			other := &instances.Items[i]
			_, _, has := active(&other.Status)
			found[other.UID] = writer{instance: other, started: has}
		}
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{IndexPodClaim: claim}); err != nil {
			return nil, err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if !slices.Contains(p.Finalizers, contract.FinalizerPod) {
				continue // its VM has ended
			}
			w := found[uidOf(p.Labels)]
			w.pod, w.started = p, true
			found[uidOf(p.Labels)] = w
		}
	}
	var all []writer
	for uid, w := range found {
		if ended := w.instance != nil && isFinal(w.instance.Status.Phase); uid != vmi.UID && !ended {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b writer) int { return strings.Compare(a.name(), b.name()) })
	return all, nil
}

// createAlone makes the instance's pod while no other is made with one of its claims, and asks the API server
// for the pods of others, which the cache may not have yet: of two instances the one that was made later
// sees the other.
func (t *round) createAlone(ctx context.Context) error {
	vmi := t.o.instance
	done, alone := t.creating.begin(vmi.Namespace, writtenClaims(vmi))
	if !alone {
		t.again = soon
		t.o.fault = &fault{reasonClaimInUse, "another VM with a claim of this one's is being started at this moment: it is looked at again"}
		return nil
	}
	defer done()
	var err error
	if t.o.writers, err = t.writers(ctx, vmi); err != nil {
		return err
	}
	for i := range t.o.writers {
		w := &t.o.writers[i]
		if w.started {
			continue
		}
		if w.pod, err = t.ownPod(ctx, w.instance); err != nil {
			return err
		}
		w.started = w.pod != nil
	}
	if claimInUse(vmi, t.o.writers) != nil {
		return nil // the next step says so
	}
	return t.create(ctx)
}

// claimLocks are claims with which a pod is being made. The zero value has none. Its methods may be called
// concurrently.
type claimLocks struct {
	mu   sync.Mutex
	held map[types.NamespacedName]bool
}

// begin takes all claims, or none if another has one of them.
func (l *claimLocks) begin(namespace string, claims []string) (done func(), alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range claims {
		if l.held[types.NamespacedName{Namespace: namespace, Name: name}] {
			return nil, false
		}
	}
	if l.held == nil {
		l.held = make(map[types.NamespacedName]bool)
	}
	for _, name := range claims {
		l.held[types.NamespacedName{Namespace: namespace, Name: name}] = true
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, name := range claims {
			delete(l.held, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}, true
}

// ofWriter has the instances that may have waited for another one, or for what is left of one: its pod.
func (r *Reconciler) ofWriter(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var claims []string
	switch o := o.(type) {
	case *kubevirtv1.VirtualMachineInstance:
		claims = writtenClaims(o)
	case *corev1.Pod:
		claims = podClaims(o)
	}
	for _, claim := range claims {
		var all kubevirtv1.VirtualMachineInstanceList
		if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.MatchingFields{IndexClaim: claim}); err != nil {
			return nil
		}
		for i := range all.Items {
			if other := (&observed{instance: &all.Items[i]}); other.fresh() && other.instance.UID != o.GetUID() {
				requests = append(requests, request(o.GetNamespace(), other.instance.Name))
			}
		}
	}
	return requests
}
