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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// soon is when a VM is looked at again that has changed since it was read.
const soon = time.Second

// errChanged: what was decided on is not so any more.
var errChanged = errors.New("the objects have changed")

// act carries out one action. The error is errChanged where the API server says that the
// objects are not as decide had them.
func (w *Writer) act(ctx context.Context, vm *kubevirtv1.VirtualMachine, a action.Action) error {
	var err error
	switch a := a.(type) {
	case action.PatchMachine:
		err = w.Client.Patch(ctx, a.To.DeepCopy(), changed(vm))
	case action.PatchInstance:
		err = w.patchInstance(ctx, a.To)
	case action.DirectInstance:
		err = w.directInstance(ctx, a)
	case action.ResizeInstance:
		err = w.resizeInstance(ctx, a)
	case action.MarkInstance:
		err = w.merge(ctx, a.Instance.DeepCopy(), marks(a))
	case action.CreateClaim:
		if err = w.Client.Create(ctx, a.Claim.DeepCopy()); err == nil {
			w.event(vm, action.Normal(reasonSuccessfulCreate, "Created PersistentVolumeClaim %s for the guest's memory", a.Claim.Name))
		}
	case action.DeleteClaim:
		if err = w.Client.Delete(ctx, a.Claim.DeepCopy(), client.Preconditions{UID: &a.Claim.UID}); err == nil {
			w.event(vm, action.Normal(reasonSuccessfulDelete, "Deleted PersistentVolumeClaim %s", a.Claim.Name))
		}
	case action.RecordEvent:
		w.event(vm, a.Event)
	case action.CreateDataVolume:
		err = templates{w}.createDataVolume(ctx, vm, a.Template)
	case action.AdoptDataVolume:
		err = templates{w}.adoptDataVolume(ctx, vm, a.Name)
	case action.ImportClaim:
		err = templates{w}.importClaim(ctx, vm, a.Template)
	case action.BindClaim:
		err = templates{w}.bindClaim(ctx, vm, a.Name)
	case action.CreateRevision:
		if err = w.Client.Create(ctx, a.Revision.DeepCopy()); apierrors.IsAlreadyExists(err) {
			err = w.takeOver(ctx, vm, a.Revision)
		}
	case action.CreateInstance:
		if err = w.Client.Create(ctx, a.Instance.DeepCopy()); err == nil {
			w.event(vm, action.Normal(reasonSuccessfulCreate, "Created VirtualMachineInstance %s", a.Instance.Name))
		}
	case action.PruneRevisions:
		err = w.prune(ctx, vm, a.Keep)
	case action.DeleteInstance:
		if err = w.Client.Delete(ctx, a.Instance.DeepCopy(), client.Preconditions{UID: &a.Instance.UID}); err == nil {
			w.event(vm, action.Normal(reasonSuccessfulDelete, "Deleted VirtualMachineInstance %s", a.Instance.Name))
		}
	case action.WriteStatus:
		err = w.writeStatus(ctx, vm, a)
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

func (w *Writer) writeStatus(ctx context.Context, vm *kubevirtv1.VirtualMachine, a action.WriteStatus) error {
	to := vm.DeepCopy()
	to.Status = *a.Status
	if err := w.Client.Status().Patch(ctx, to, changed(vm)); err != nil {
		return err
	}
	for _, e := range a.Events {
		w.event(vm, e)
	}
	return nil
}

// patchInstance sets the finalizers and owners of an instance, by the resource version that was
// decided on.
func (w *Writer) patchInstance(ctx context.Context, to *kubevirtv1.VirtualMachineInstance) error {
	return w.merge(ctx, to.DeepCopy(), map[string]any{"metadata": map[string]any{
		"resourceVersion": to.ResourceVersion, "uid": to.UID,
		"finalizers": to.Finalizers, "ownerReferences": to.OwnerReferences,
	}})
}

// merge writes fields of an object, and leaves the others.
func (w *Writer) merge(ctx context.Context, to client.Object, fields any) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return w.Client.Patch(ctx, to, client.RawPatch(types.MergePatchType, patch))
}

// directInstance writes what the controller alone may of an instance's spec.
func (w *Writer) directInstance(ctx context.Context, a action.DirectInstance) error {
	spec := map[string]any{"stopStrategy": nil, "utilityVolumes": nil}
	if a.Stop != "" {
		spec["stopStrategy"] = a.Stop
	}
	if len(a.Volumes) > 0 {
		spec["utilityVolumes"] = a.Volumes
	}
	return w.merge(ctx, a.Instance.DeepCopy(), map[string]any{"metadata": map[string]any{"uid": a.Instance.UID}, "spec": spec})
}

// resizeInstance has no resource version: nobody else writes these fields.
func (w *Writer) resizeInstance(ctx context.Context, a action.ResizeInstance) error {
	domain := map[string]any{"cpu": map[string]any{"sockets": a.Sockets}}
	if a.Memory != nil {
		domain["memory"] = map[string]any{"guest": a.Memory}
	}
	return w.merge(ctx, a.Instance.DeepCopy(), map[string]any{
		"metadata": map[string]any{"uid": a.Instance.UID, "annotations": map[string]string{contract.AnnotationLiveSize: "true"}},
		"spec":     map[string]any{"domain": domain},
	})
}

func (t templates) createDataVolume(ctx context.Context, vm *kubevirtv1.VirtualMachine, template *kubevirtv1.DataVolumeTemplateSpec) error {
	resolved, err := t.resolve(ctx, vm, template)
	if err != nil {
		return err
	}
	u, err := newDataVolume(vm, resolved)
	if err != nil {
		return err
	}
	if err := t.Client.Create(ctx, u); err != nil {
		return err
	}
	t.event(vm, action.Normal(reasonSuccessfulDataVolumeCreate, "Created DataVolume %s", template.Name))
	return nil
}

// adoptDataVolume makes the VM the owner of a DataVolume, unless it has one by now.
func (t templates) adoptDataVolume(ctx context.Context, vm *kubevirtv1.VirtualMachine, name string) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(cdi("DataVolume"))
	if err := t.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, u); err != nil {
		return err
	}
	if metav1.GetControllerOf(u) != nil {
		return errChanged
	}
	was := u.DeepCopy()
	u.SetOwnerReferences(append(u.GetOwnerReferences(), run.OwnedBy(vm)))
	return t.Client.Patch(ctx, u, changed(was))
}

// takeOver has the VM keep a ControllerRevision of the wanted name that exists. One that belongs to
// nobody, as a VM was deleted without its dependents or a backup restored it first, becomes the VM's if
// it keeps the same. One of an earlier VM of the name is about to be deleted with that: errChanged.
func (w *Writer) takeOver(ctx context.Context, vm *kubevirtv1.VirtualMachine, wanted *appsv1.ControllerRevision) error {
	there := &appsv1.ControllerRevision{}
	if err := w.Live.Get(ctx, client.ObjectKeyFromObject(wanted), there); err != nil {
		return err
	}
	owner := metav1.GetControllerOf(there)
	switch {
	case owner != nil && owner.UID == vm.UID:
		return nil
	case there.DeletionTimestamp != nil, owner != nil && owner.Kind == run.MachineKind && owner.Name == vm.Name:
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
	return w.Client.Patch(ctx, there, changed(was))
}

// sameData tells whether two ControllerRevisions keep the same, whatever the order of keys.
func sameData(a, b *appsv1.ControllerRevision) bool {
	var x, y any
	return json.Unmarshal(a.Data.Raw, &x) == nil && json.Unmarshal(b.Data.Raw, &y) == nil && reflect.DeepEqual(x, y)
}

// prune deletes the VM's ControllerRevisions but for some.
func (w *Writer) prune(ctx context.Context, vm *kubevirtv1.VirtualMachine, keep []string) error {
	var all appsv1.ControllerRevisionList
	err := w.Live.List(ctx, &all, client.InNamespace(vm.Namespace), client.MatchingLabels{contract.LabelCreatedBy: string(vm.UID)})
	if err != nil {
		return err
	}
	var faults []error
	for i := range all.Items {
		if one := &all.Items[i]; !slices.Contains(keep, one.Name) && metav1.IsControlledBy(one, vm) {
			faults = append(faults, client.IgnoreNotFound(w.Client.Delete(ctx, one)))
		}
	}
	return errors.Join(faults...)
}

// explain returns an action's error as what the VM's owner should know of it; nil if that is
// nothing: the API server is away or busy.
func explain(a action.Action, err error) *action.Failure {
	var r refused
	reason, event := reasonFailedCreate, reasonFailedCreate
	switch a.(type) {
	case action.DeleteInstance, action.DeleteClaim:
		reason, event = reasonFailedDelete, reasonFailedDelete
	case action.CreateDataVolume, action.AdoptDataVolume, action.ImportClaim:
		event = reasonFailedDataVolumeCreate
	case action.PatchMachine, action.CreateRevision, action.CreateInstance, action.CreateClaim, action.DirectInstance, action.ResizeInstance:
	default:
		return nil
	}
	switch {
	case errors.As(err, &r):
		return &action.Failure{Reason: reason, Event: r.event, Message: r.message}
	case apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return nil
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return nil
	}
	return &action.Failure{Reason: reason, Event: event, Message: action.Clip(err.Error(), action.Longest)}
}
