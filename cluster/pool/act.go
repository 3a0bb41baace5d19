package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// errChanged: what was decided on is not so any more.
var errChanged = errors.New("the objects have changed")

// carryOut does what was decided. A failure for one member does not keep others from theirs, but after one
// that can't be made no other is tried: it would fail as well.
func (r *Reconciler) carryOut(ctx context.Context, o state, all []action) (failed error) {
	checked, fails := false, false
	for _, a := range all {
		if _, creates := a.(createMember); creates && fails {
			continue
		}
		if removes(a) && !checked {
			if err := r.checkSurplus(ctx, o); err != nil {
				return worse(failed, err)
			}
			checked = true
		}
		err := r.act(ctx, o.pool, a)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			err = errChanged
		}
		if err == nil {
			continue
		}
		failed = worse(failed, err)
		switch a.(type) {
		case createMember:
			fails = true
		case writeStatus, createRevision:
			return failed // what follows would not be known of
		}
	}
	return failed
}

// worse returns the one that says more.
func worse(was, now error) error {
	if was == nil || errors.Is(was, errChanged) {
		return now
	}
	return was
}

// removes: it takes a member away because there are too many.
func removes(a action) bool {
	d, is := a.(deleteMember)
	if c, changes := a.(changeMember); changes {
		return c.member.vm.Labels[contract.LabelPoolPreserved] == "" && c.to.Labels[contract.LabelPoolPreserved] != ""
	}
	return is && d.surplus
}

// checkSurplus asks the API server whether there are more members than there are to be: what the cache has of
// nodes and claims, by which members are chosen, is of another moment than what it has of VMs.
func (r *Reconciler) checkSurplus(ctx context.Context, o state) error {
	pool := new(poolv1.VirtualMachinePool)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.pool), pool); err != nil {
		return err
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(groupVersion.WithKind("VirtualMachineList"))
	if err := r.Live.List(ctx, all, client.InNamespace(pool.Namespace), client.MatchingLabels{contract.LabelPool: string(pool.UID)}); err != nil {
		return err
	}
	there := 0
	for i := range all.Items {
		if vm := &all.Items[i]; metav1.IsControlledBy(vm, pool) && vm.DeletionTimestamp == nil && vm.Labels[contract.LabelPoolPreserved] == "" && vm.Labels[contract.LabelPoolStandby] == "" {
			there++
		}
	}
	if pool.UID != o.pool.UID || pool.Generation != o.pool.Generation || there < len(o.serving()) {
		return errChanged
	}
	return nil
}

func (r *Reconciler) act(ctx context.Context, pool *poolv1.VirtualMachinePool, a action) error {
	switch a := a.(type) {
	case createRevision:
		return r.createRevision(ctx, pool, a.revision)
	case deleteRevision:
		return r.deleteRevision(ctx, pool, a.name)
	case createMember:
		if err := r.Client.Create(ctx, a.vm.DeepCopy()); err != nil {
			return r.failed(pool, reasonFailedCreate, "create VM "+a.vm.Name, err)
		}
		r.event(pool, normal(reasonSuccessfulCreate, "Created VM %s", a.vm.Name))
	case changeMember:
		if err := r.Client.Patch(ctx, a.to.DeepCopy(), changed(a.member.vm)); err != nil {
			return r.failed(pool, reasonFailedUpdate, "change VM "+a.to.Name, err)
		}
		r.event(pool, a.event)
	case restartMember:
		return r.restart(ctx, pool, a.member)
	case deleteMember:
		return r.delete(ctx, pool, a)
	case returnClaim:
		if err := r.stays(ctx, a.member.vm); err != nil {
			return err
		}
		return r.give(ctx, pool.Namespace, a.claim, []metav1.OwnerReference{ownerVM(a.member.vm)}, string(a.member.vm.UID))
	case ownClaim:
		if a.owned {
			return r.give(ctx, pool.Namespace, a.claim, []metav1.OwnerReference{ownedBy(pool)}, "")
		}
		return r.give(ctx, pool.Namespace, a.claim, nil, "")
	case deleteClaim:
		if err := r.deleteKept(ctx, pool.Namespace, a.claim); err != nil {
			return err
		}
		r.event(pool, a.event)
	case writeBudget:
		return r.writeBudget(ctx, pool, a)
	case deleteBudget:
		return r.deleteBudget(ctx, pool, a)
	case writeStatus:
		return r.writeStatus(ctx, pool, a.status)
	default:
		return fmt.Errorf("unknown action %T", a)
	}
	return nil
}

// failed tells of an error that users can do something about, and returns it.
func (r *Reconciler) failed(pool *poolv1.VirtualMachinePool, reason, what string, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return err
	}
	err = fmt.Errorf("%s: %w", what, err)
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		r.event(pool, warning(reason, "%v", err))
	}
	return err
}

// changed makes a patch that the API server refuses if the object is not as it was.
func changed(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
}

func (r *Reconciler) writeStatus(ctx context.Context, pool *poolv1.VirtualMachinePool, status *poolv1.VirtualMachinePoolStatus) error {
	to := pool.DeepCopy()
	to.Status = *status
	return r.Client.Status().Patch(ctx, to, changed(pool))
}

func (r *Reconciler) createRevision(ctx context.Context, pool *poolv1.VirtualMachinePool, of revision) error {
	defer r.history.forget(client.ObjectKeyFromObject(pool))
	object, err := of.object(pool)
	if err != nil {
		return err
	}
	return r.Client.Create(ctx, object)
}

func (r *Reconciler) deleteRevision(ctx context.Context, pool *poolv1.VirtualMachinePool, name string) error {
	defer r.history.forget(client.ObjectKeyFromObject(pool))
	object := new(appsv1.ControllerRevision)
	object.Namespace, object.Name = pool.Namespace, name
	return client.IgnoreNotFound(r.Client.Delete(ctx, object))
}

// restart asks for what `virtctl restart` does.
func (r *Reconciler) restart(ctx context.Context, pool *poolv1.VirtualMachinePool, m member) error {
	vmi := new(kubevirtv1.VirtualMachineInstance)
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(m.vm), vmi); err != nil {
		return err
	}
	if !metav1.IsControlledBy(vmi, m.vm) {
		return errChanged
	}
	to := m.vm.DeepCopy()
	to.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{
		{Action: kubevirtv1.StateChangeStop, UID: &vmi.UID}, {Action: kubevirtv1.StateChangeStart},
	}
	if err := r.Client.Status().Patch(ctx, to, changed(m.vm)); err != nil {
		return r.failed(pool, reasonFailedUpdate, "restart VM "+m.vm.Name, err)
	}
	r.event(pool, normal(reasonSuccessfulUpdate, "Restarts VM %s, as its template has changed", m.vm.Name))
	return nil
}

// delete deletes a VM, whose disks become the pool's first if they are to be kept. One whose disks can't be
// kept is not deleted.
func (r *Reconciler) delete(ctx context.Context, pool *poolv1.VirtualMachinePool, d deleteMember) error {
	vm := d.member.vm
	if d.keep {
		if err := r.keep(ctx, pool, d.member); err != nil {
			return r.failed(pool, reasonPreserveFailed, "keep the disks of VM "+vm.Name, err)
		}
	}
	exactly := client.Preconditions{UID: &vm.UID, ResourceVersion: &vm.ResourceVersion}
	if err := r.Client.Delete(ctx, vm.DeepCopy(), exactly); err != nil {
		return r.failed(pool, reasonFailedDelete, "delete VM "+vm.Name, err)
	}
	r.event(pool, d.event)
	return nil
}

// keep makes the disks that were made for a VM the pool's. Disks that its template merely names are left alone.
func (r *Reconciler) keep(ctx context.Context, pool *poolv1.VirtualMachinePool, m member) error {
	for _, t := range m.vm.Spec.DataVolumeTemplates {
		kinds := []string{kindClaim}
		if r.DataVolumes {
			kinds = []string{kindDataVolume, kindClaim}
		}
		for _, kind := range kinds {
			o := disk(kind, pool.Namespace, t.Name)
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return err
			}
			if !metav1.IsControlledBy(o, m.vm) {
				continue
			}
			was := o.DeepCopyObject().(client.Object)
			o.SetLabels(with(o.GetLabels(), map[string]string{
				contract.LabelPool: string(pool.UID), contract.LabelPoolIndex: fmt.Sprint(m.index), contract.LabelPoolRevision: m.revision(),
			}))
			mark(o, poolv1.PreserveDisks, r.Now())
			o.SetOwnerReferences(nil)
			if p := pool.Spec.Preservation; p == nil || p.OnPoolDeletion != poolv1.RetainPreserved {
				o.SetOwnerReferences([]metav1.OwnerReference{ownedBy(pool)})
			}
			if err := r.Client.Patch(ctx, o, changed(was)); err != nil {
				return err
			}
		}
	}
	return nil
}

// stays asks the API server whether a VM is there and not being deleted. The cache has a VM for a while that was
// deleted, and its disks would be deleted with it.
func (r *Reconciler) stays(ctx context.Context, vm *kubevirtv1.VirtualMachine) error {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(groupVersion.WithKind("VirtualMachine"))
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(vm), live); err != nil {
		return err
	}
	if live.UID != vm.UID || live.DeletionTimestamp != nil {
		return errChanged
	}
	return nil
}

// stillKept reads a disk as the API server has it: the cache has one as kept for a while that a VM has again.
func (r *Reconciler) stillKept(ctx context.Context, namespace string, c claim) (client.Object, error) {
	o := disk(c.kind, namespace, c.name)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return nil, err
	}
	if o.GetUID() != c.uid || o.GetLabels()[contract.LabelPoolPreserved] == "" {
		return nil, errChanged
	}
	return o, nil
}

func (r *Reconciler) deleteKept(ctx context.Context, namespace string, c claim) error {
	o, err := r.stillKept(ctx, namespace, c)
	if err != nil {
		return err
	}
	version := o.GetResourceVersion()
	return r.Client.Delete(ctx, o, client.Preconditions{UID: &c.uid, ResourceVersion: &version})
}

// give makes a disk that was kept another owner's. With a VM's UID it is one of that VM's disks again.
func (r *Reconciler) give(ctx context.Context, namespace string, c claim, owners []metav1.OwnerReference, vm string) error {
	o, err := r.stillKept(ctx, namespace, c)
	if err != nil {
		return err
	}
	was := o.DeepCopyObject().(client.Object)
	if vm != "" {
		labels, annotations := with(o.GetLabels(), nil), with(o.GetAnnotations(), nil)
		for _, key := range []string{contract.LabelPool, contract.LabelPoolIndex, contract.LabelPoolRevision, contract.LabelPoolPreserved} {
			delete(labels, key)
		}
		delete(annotations, contract.AnnotationPoolPreservedSince)
		if labels[contract.LabelCreatedBy] != "" {
			labels[contract.LabelCreatedBy] = vm
		}
		o.SetLabels(labels)
		o.SetAnnotations(annotations)
	}
	o.SetOwnerReferences(slices.Clone(owners))
	return r.Client.Patch(ctx, o, changed(was))
}

func ownerVM(vm *kubevirtv1.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, groupVersion.WithKind("VirtualMachine"))
}

// disk is an object of one of the kinds that disks are made of.
func disk(kind, namespace, name string) client.Object {
	var o client.Object = new(corev1.PersistentVolumeClaim)
	if kind == kindDataVolume {
		o = dataVolume()
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

var groupVersion = schema.GroupVersion{Group: kubevirtv1.Group, Version: kubevirtv1.Version}
