package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// soon is when a VM is looked at again that has changed since it was read.
const soon = time.Second

// errChanged: what was decided on is not so any more.
var errChanged = errors.New("the objects have changed")

// act carries out one action. The error is errChanged where the API server says that the
// objects are not as decide had them.
func (r *Reconciler) act(ctx context.Context, vm *kubevirtv1.VirtualMachine, a action) error {
	var err error
	switch a := a.(type) {
	case patchMachine:
		err = r.Client.Patch(ctx, a.to.DeepCopy(), changed(vm))
	case patchInstance:
		err = r.patchInstance(ctx, a.to)
	case directInstance:
		err = r.directInstance(ctx, a)
	case sizeInstance:
		err = r.sizeInstance(ctx, a)
	case createClaim:
		if err = r.Client.Create(ctx, a.claim.DeepCopy()); err == nil {
			r.event(vm, event{corev1.EventTypeNormal, reasonSuccessfulCreate, "Created PersistentVolumeClaim " + a.claim.Name + " for the guest's memory"})
		}
	case deleteClaim:
		if err = r.Client.Delete(ctx, a.claim.DeepCopy(), client.Preconditions{UID: &a.claim.UID}); err == nil {
			r.event(vm, event{corev1.EventTypeNormal, reasonSuccessfulDelete, "Deleted PersistentVolumeClaim " + a.claim.Name})
		}
	case say:
		r.event(vm, a.event)
	case createDataVolume:
		err = r.createDataVolume(ctx, vm, a.template)
	case adoptDataVolume:
		err = r.adoptDataVolume(ctx, vm, a.name)
	case importClaim:
		err = r.importClaim(ctx, vm, a.template)
	case bindClaim:
		err = r.bindClaim(ctx, vm, a.name)
	case createRevision:
		if err = r.Client.Create(ctx, a.revision.DeepCopy()); apierrors.IsAlreadyExists(err) {
			err = r.takeOver(ctx, vm, a.revision)
		}
	case createInstance:
		if err = r.Client.Create(ctx, a.instance.DeepCopy()); err == nil {
			r.event(vm, event{corev1.EventTypeNormal, reasonSuccessfulCreate, "Created VirtualMachineInstance " + a.instance.Name})
		}
	case pruneRevisions:
		err = r.prune(ctx, vm, a.keep)
	case deleteInstance:
		if err = r.Client.Delete(ctx, a.instance.DeepCopy(), client.Preconditions{UID: &a.instance.UID}); err == nil {
			r.event(vm, event{corev1.EventTypeNormal, reasonSuccessfulDelete, "Deleted VirtualMachineInstance " + a.instance.Name})
		}
	case writeStatus:
		err = r.writeStatus(ctx, vm, a)
	default:
		err = fmt.Errorf("unknown action %T", a)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	return err
}

// changed makes a patch that the API server refuses if the object is not as it was.
func changed(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
}

func (r *Reconciler) writeStatus(ctx context.Context, vm *kubevirtv1.VirtualMachine, w writeStatus) error {
	to := vm.DeepCopy()
	to.Status = *w.status
	if err := r.Client.Status().Patch(ctx, to, changed(vm)); err != nil {
		return err
	}
	for _, e := range w.events {
		r.event(vm, e)
	}
	return nil
}

// patchInstance sets the finalizers and owners of an instance, by the resource version that was
// decided on.
func (r *Reconciler) patchInstance(ctx context.Context, to *kubevirtv1.VirtualMachineInstance) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": to.ResourceVersion, "uid": to.UID,
		"finalizers": to.Finalizers, "ownerReferences": to.OwnerReferences,
	}})
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, to.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// directInstance writes what the controller alone may of an instance's spec.
func (r *Reconciler) directInstance(ctx context.Context, a directInstance) error {
	spec := map[string]any{"stopStrategy": nil, "utilityVolumes": nil}
	if a.stop != "" {
		spec["stopStrategy"] = a.stop
	}
	if len(a.volumes) > 0 {
		spec["utilityVolumes"] = a.volumes
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.instance.UID}, "spec": spec})
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, a.instance.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

func (r *Reconciler) sizeInstance(ctx context.Context, a sizeInstance) error {
	patch, err := a.patch()
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, a.instance.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

func (r *Reconciler) createDataVolume(ctx context.Context, vm *kubevirtv1.VirtualMachine, template *kubevirtv1.DataVolumeTemplateSpec) error {
	resolved, err := r.resolve(ctx, vm, template)
	if err != nil {
		return err
	}
	u, err := newDataVolume(vm, resolved)
	if err != nil {
		return err
	}
	if err := r.Client.Create(ctx, u); err != nil {
		return err
	}
	r.event(vm, event{corev1.EventTypeNormal, reasonSuccessfulDataVolumeCreate, "Created DataVolume " + template.Name})
	return nil
}

// adoptDataVolume makes the VM the owner of a DataVolume, unless it has one by now.
func (r *Reconciler) adoptDataVolume(ctx context.Context, vm *kubevirtv1.VirtualMachine, name string) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(cdi("DataVolume"))
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, u); err != nil {
		return err
	}
	if metav1.GetControllerOf(u) != nil {
		return errChanged
	}
	was := u.DeepCopy()
	u.SetOwnerReferences(append(u.GetOwnerReferences(), ownedBy(vm)))
	return r.Client.Patch(ctx, u, changed(was))
}

// takeOver has the VM keep a ControllerRevision of the wanted name that exists. One that belongs to
// nobody, as a VM was deleted without its dependents or a backup restored it first, becomes the VM's if
// it keeps the same. One of an earlier VM of the name is about to be deleted with that: errChanged.
func (r *Reconciler) takeOver(ctx context.Context, vm *kubevirtv1.VirtualMachine, wanted *appsv1.ControllerRevision) error {
	there := &appsv1.ControllerRevision{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), there); err != nil {
		return err
	}
	owner := metav1.GetControllerOf(there)
	switch {
	case owner != nil && owner.UID == vm.UID:
		return nil
	case there.DeletionTimestamp != nil, owner != nil && owner.Kind == machineKind && owner.Name == vm.Name:
		return errChanged
	case owner != nil:
		return refusal(reasonFailedCreate, "found existing ControllerRevision %s, which belongs to %s %s: delete it if that is a mistake", there.Name, owner.Kind, owner.Name)
	case !sameData(there, wanted):
		return refusal(reasonFailedCreate, "found existing ControllerRevision %s with other content than the VM would keep: delete it if no VM needs it", there.Name)
	}
	was := there.DeepCopy()
	there.OwnerReferences = append(there.OwnerReferences, wanted.OwnerReferences...)
	if there.Labels == nil {
		there.Labels = make(map[string]string)
	}
	maps.Copy(there.Labels, wanted.Labels)
	return r.Client.Patch(ctx, there, changed(was))
}

// sameData tells whether two ControllerRevisions keep the same, whatever the order of keys.
func sameData(a, b *appsv1.ControllerRevision) bool {
	var x, y any
	return json.Unmarshal(a.Data.Raw, &x) == nil && json.Unmarshal(b.Data.Raw, &y) == nil && reflect.DeepEqual(x, y)
}

// prune deletes the VM's ControllerRevisions but for some.
func (r *Reconciler) prune(ctx context.Context, vm *kubevirtv1.VirtualMachine, keep []string) error {
	var all appsv1.ControllerRevisionList
	err := r.Live.List(ctx, &all, client.InNamespace(vm.Namespace), client.MatchingLabels{contract.LabelCreatedBy: string(vm.UID)})
	if err != nil {
		return err
	}
	var faults []error
	for i := range all.Items {
		if one := &all.Items[i]; !slices.Contains(keep, one.Name) && metav1.IsControlledBy(one, vm) {
			faults = append(faults, client.IgnoreNotFound(r.Client.Delete(ctx, one)))
		}
	}
	return errors.Join(faults...)
}

// event tells Kubernetes of something that happened to the VM.
func (r *Reconciler) event(vm *kubevirtv1.VirtualMachine, e event) {
	const most = 1000 // of the 1024 bytes that a note may have
	r.Events.Eventf(vm, nil, e.kind, e.reason, e.reason, "%s", clip(e.note, most))
}

// explain returns an action's error as what the VM's owner should know of it; nil if that is
// nothing: the API server is away or busy.
func explain(a action, err error) *failure {
	var r refused
	reason, event := reasonFailedCreate, reasonFailedCreate
	switch a.(type) {
	case deleteInstance, deleteClaim:
		reason, event = reasonFailedDelete, reasonFailedDelete
	case createDataVolume, adoptDataVolume, importClaim:
		event = reasonFailedDataVolumeCreate
	case patchMachine, createRevision, createInstance, createClaim, directInstance, sizeInstance:
	default:
		return nil
	}
	switch {
	case errors.As(err, &r):
		return &failure{reason: reason, event: r.event, message: r.message}
	case apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return nil
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return nil
	}
	return &failure{reason: reason, event: event, message: clip(err.Error(), longest)}
}
