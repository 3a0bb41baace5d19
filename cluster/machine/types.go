package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/cluster/instancetype/lookup"
	"github.com/vmlet/vmlet/cluster/machine/action"
)

// expand reads the types of the observed VM, and puts it with what they say in its place. All that
// is written of it is the difference to what was state, so they are never written into it.
func (o *state) expand(ctx context.Context, from client.Reader) error {
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
func freeze(o state) (actions []action.Action) {
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
