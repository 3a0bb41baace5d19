package machine

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/cluster/instancetype/lookup"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/contract"
)

// Reasons of the condition Failure, as KubeVirt spells them.
const (
	reasonNoInstancetype = "FailedFindInstancetype"
	reasonNoPreference   = "FailedFindPreference"
)

// vmTypes is what is known of a VM's instancetype and preference.
type vmTypes struct {
	// used and preferred are what the VM's status is to say of them, and revisions what has to be
	// made before: they keep both as they are when the VM begins with them.
	used, preferred *kubevirtv1.InstancetypeStatusRef
	revisions       []*appsv1.ControllerRevision
	// fault is why the VM can't be expanded by them; nil: it has been.
	fault *action.Failure
}

// expand reads the types of the observed VM, and puts it with what they say in its place. All that
// is written of it is the difference to what was observed, so they are never written into it.
func (o *observed) expand(ctx context.Context, from client.Reader) error {
	found, err := lookup.Types(ctx, from, o.vm)
	if err != nil {
		return err
	}
	if len(found.Faults) > 0 {
		reason := reasonNoInstancetype
		if found.Used != nil || o.vm.Spec.Instancetype == nil {
			reason = reasonNoPreference
		}
		o.types.fault = &action.Failure{Reason: reason, Event: reason, Message: action.Clip(found.Faults.ToAggregate().Error(), action.Longest)}
		return nil
	}
	full, conflicts := instancetype.Expand(o.vm, found.Types)
	if len(conflicts) > 0 {
		o.types.fault = &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: action.Clip(conflicts.ToAggregate().Error(), action.Longest)}
		return nil
	}
	o.vm, o.types = full, vmTypes{used: found.Used, preferred: found.Preferred, revisions: found.Revisions}
	return nil
}

// freeze has the VM keep its types as they are now, unless it has. What they become later is not
// the VM's any more, and so this is done before anything is made by them.
func freeze(o observed) (actions []action.Action) {
	if o.types.fault != nil {
		return nil
	}
	to := o.vm.Status.DeepCopy()
	to.InstancetypeRef, to.PreferenceRef = o.types.used, o.types.preferred
	if equality.Semantic.DeepEqual(&o.vm.Status, to) {
		return nil
	}
	for _, revision := range o.types.revisions {
		actions = append(actions, action.CreateRevision{Revision: revision})
	}
	return append(actions, action.WriteStatus{Status: to})
}

// typeRevisions are the names of those that keep the VM's types.
func typeRevisions(vm *kubevirtv1.VirtualMachine) (names []string) {
	for _, ref := range []*kubevirtv1.InstancetypeStatusRef{vm.Status.InstancetypeRef, vm.Status.PreferenceRef} {
		if ref != nil && ref.ControllerRevisionRef != nil {
			names = append(names, ref.ControllerRevisionRef.Name)
		}
	}
	return names
}

// typeChanges are the matchers of the VM that are others than those that its instance was started
// with.
func typeChanges(before, after *kubevirtv1.VirtualMachineSpec) (paths []string) {
	if !equality.Semantic.DeepEqual(before.Instancetype, after.Instancetype) {
		paths = append(paths, "spec.instancetype")
	}
	if !equality.Semantic.DeepEqual(before.Preference, after.Preference) {
		paths = append(paths, "spec.preference")
	}
	return paths
}

// dropTypes removes from an instance's annotations those that name its types.
func dropTypes(annotations map[string]string) {
	for _, key := range []string{
		contract.AnnotationInstancetype, contract.AnnotationClusterInstancetype, contract.AnnotationPreference, contract.AnnotationClusterPreference,
	} {
		delete(annotations, key)
	}
}

// byType is the index of VMs by what they name as instancetype and preference and have not begun
// with.
const byType = "types"

// wantedTypes are those of a VM that it has not begun with, as kind and name.
func wantedTypes(vm *kubevirtv1.VirtualMachine) (all []string) {
	for _, r := range instancetype.References(vm) {
		if kind, known := r.Kind(); known && r.Revision() == "" {
			all = append(all, kind+"/"+r.Matcher.Name)
		}
	}
	return all
}

// typeKinds are watched, by their names alone: a VM may wait for one of them to be made.
func typeKinds() map[string]client.Object {
	return map[string]client.Object{
		instancetypev1.KindInstancetype:        &instancetypev1.VirtualMachineInstancetype{},
		instancetypev1.KindClusterInstancetype: &instancetypev1.VirtualMachineClusterInstancetype{},
		instancetypev1.KindPreference:          &instancetypev1.VirtualMachinePreference{},
		instancetypev1.KindClusterPreference:   &instancetypev1.VirtualMachineClusterPreference{},
	}
}

// Uncached are the kinds whose names alone are watched: a Reconciler's client has to read them from the API
// server, as a cache of the whole objects would be behind the watch of their names.
func Uncached() []client.Object { return slices.Collect(maps.Values(typeKinds())) }

// waiting returns the VMs that name an instancetype or preference of a kind and have not begun with
// it.
func (r *Reconciler) waiting(kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
		var all kubevirtv1.VirtualMachineList
		in := client.InNamespace(o.GetNamespace()) // none: all
		if err := r.Client.List(ctx, &all, in, client.MatchingFields{byType: kind + "/" + o.GetName()}); err != nil {
			return nil // a cache fails only where it has no such index
		}
		for _, vm := range all.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&vm)})
		}
		return requests
	})
}
