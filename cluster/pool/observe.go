package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// observe reads what is known of a pool. What it returns of VMs and nodes belongs to the cache and is not
// written to.
func (r *Reconciler) observe(ctx context.Context, name types.NamespacedName) (state, error) {
	o := state{burst: cmp.Or(r.Burst, DefaultBurst), now: r.Now()}
	pool := new(poolv1.VirtualMachinePool)
	if err := r.Client.Get(ctx, name, pool); err != nil {
		r.history.forget(name)
		return o, client.IgnoreNotFound(err)
	}
	if o.pool = pool; pool.DeletionTimestamp != nil {
		return o, nil
	}
	if err := r.machines(ctx, &o); err != nil {
		return o, err
	}
	if err := r.keptClaims(ctx, &o); err != nil {
		return o, err
	}
	if err := r.budgets(ctx, &o); err != nil {
		return o, err
	}
	var err error
	o.revisions, err = r.history.of(ctx, r.Live, pool)
	return o, err
}

// machines reads the VMs of the pool's namespace, and where its members run. A VM that names the pool as its
// owner and has no index in its name is no member: the template makes disks by the index.
func (r *Reconciler) machines(ctx context.Context, o *state) error {
	var all kubevirtv1.VirtualMachineList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMs: %w", err)
	}
	o.taken = make(map[string]bool)
	for i := range all.Items {
		vm := &all.Items[i]
		if index, is := indexOf(o.pool.Name, vm.Name); is && metav1.IsControlledBy(vm, o.pool) {
			o.members = append(o.members, member{vm: vm, index: index})
			continue
		}
		if strings.HasPrefix(vm.Name, o.pool.Name+"-") {
			o.taken[vm.Name] = true
		}
		if vm.Labels[contract.LabelPool] == string(o.pool.UID) && vm.DeletionTimestamp == nil && !metav1.IsControlledBy(vm, o.pool) {
			o.detached = append(o.detached, vm)
		}
	}
	slices.SortFunc(o.members, func(a, b member) int { return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.vm.Name, b.vm.Name)) })
	return r.places(ctx, o)
}

// places finds the instances of members, and the nodes that they run on.
func (r *Reconciler) places(ctx context.Context, o *state) error {
	var instances kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &instances, client.InNamespace(o.pool.Namespace), client.MatchingLabels{contract.LabelPool: string(o.pool.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the instances of VMs: %w", err)
	}
	at := make(map[string]*kubevirtv1.VirtualMachineInstance, len(instances.Items))
	for i := range instances.Items {
		at[instances.Items[i].Name] = &instances.Items[i]
	}
	nodes := make(map[string]*corev1.Node)
	for i, m := range o.members {
		vmi := at[m.vm.Name]
		if vmi == nil || !metav1.IsControlledBy(vmi, m.vm) {
			continue
		}
		o.members[i].instance = vmi.UID
		name := vmi.Status.NodeName
		if name == "" {
			continue
		}
		if _, has := nodes[name]; !has {
			node := new(corev1.Node)
			if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node); err == nil {
				nodes[name] = node
			} else if nodes[name] = nil; !apierrors.IsNotFound(err) {
				return fmt.Errorf("read node %s: %w", name, err)
			}
		}
		o.members[i].node = nodes[name]
	}
	return nil
}

// keptClaims reads the disks that are kept of members scaled in.
func (r *Reconciler) keptClaims(ctx context.Context, o *state) error {
	labelled := []client.ListOption{client.InNamespace(o.pool.Namespace), client.MatchingLabels{contract.LabelPool: string(o.pool.UID)}}
	add := func(kind string, disk client.Object) {
		index, err := strconv.ParseInt(disk.GetLabels()[contract.LabelPoolIndex], 10, 32)
		if err != nil || index < 0 || disk.GetDeletionTimestamp() != nil || disk.GetLabels()[contract.LabelPoolPreserved] == "" {
			return
		}
		owner := metav1.GetControllerOf(disk)
		if owner != nil && owner.UID != o.pool.UID {
			return // it is a VM's
		}
		o.claims = append(o.claims, claim{
			name: disk.GetName(), index: int32(index), since: since(disk), revision: disk.GetLabels()[contract.LabelPoolRevision],
			owned: owner != nil, uid: disk.GetUID(), kind: kind,
		})
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &claims, labelled...); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	for i := range claims.Items {
		add(kindClaim, &claims.Items[i])
	}
	if r.DataVolumes {
		var volumes unstructured.UnstructuredList
		volumes.SetGroupVersionKind(dataVolume().GroupVersionKind())
		if err := r.Client.List(ctx, &volumes, labelled...); err != nil {
			return fmt.Errorf("list DataVolumes: %w", err)
		}
		for i := range volumes.Items {
			add(kindDataVolume, &volumes.Items[i])
		}
	}
	slices.SortFunc(o.claims, func(a, b claim) int { return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.name, b.name)) })
	return nil
}

// history remembers pools' revisions: nobody else makes them, and the cache has none. It may be used
// concurrently.
type history struct {
	mutex sync.Mutex
	known map[types.NamespacedName]remembered
}

type remembered struct {
	pool       types.UID
	generation int64
	revisions  []revision
}

func (h *history) forget(pool types.NamespacedName) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	delete(h.known, pool)
}

// of returns a pool's revisions, oldest first. They are read again when the pool has changed, or after forget.
func (h *history) of(ctx context.Context, live client.Reader, pool *poolv1.VirtualMachinePool) ([]revision, error) {
	name := client.ObjectKeyFromObject(pool)
	h.mutex.Lock()
	known, is := h.known[name]
	h.mutex.Unlock()
	if is && known.pool == pool.UID && known.generation == pool.Generation {
		return known.revisions, nil
	}
	var all appsv1.ControllerRevisionList
	if err := live.List(ctx, &all, client.InNamespace(pool.Namespace), client.MatchingLabels{contract.LabelPool: string(pool.UID)}); err != nil {
		return nil, fmt.Errorf("list ControllerRevisions: %w", err)
	}
	known = remembered{pool: pool.UID, generation: pool.Generation}
	for i := range all.Items {
		if r, is := readRevision(&all.Items[i], pool); is {
			known.revisions = append(known.revisions, r)
		}
	}
	slices.SortFunc(known.revisions, func(a, b revision) int { return cmp.Compare(a.number, b.number) })
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.known == nil {
		h.known = make(map[types.NamespacedName]remembered)
	}
	h.known[name] = known
	return known.revisions, nil
}
