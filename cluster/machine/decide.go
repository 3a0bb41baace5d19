package machine

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// decision is what is to be done next.
type decision struct {
	// actions are carried out in order, up to the first that fails; those that are independent
	// all.
	actions []action.Action
	// again is when the VM has to be looked at though nothing has changed; zero is never.
	again time.Time
}

// decide says what is to be done about a VM next.
func decide(o observed) decision {
	if o.vm == nil {
		return decision{actions: release(o)}
	}
	if !o.vm.DeletionTimestamp.IsZero() {
		return remove(o)
	}
	if o.vm.Spec.Template == nil {
		return decision{} // no API server stores such a VM
	}
	if prepared := prepare(o.vm); prepared != nil && o.failed == nil {
		return decision{actions: []action.Action{action.PatchMachine{To: prepared}}}
	}
	if first := freeze(o); first != nil && o.failed == nil {
		return decision{actions: first}
	}
	if to := taken(o); to != nil && o.failed == nil {
		return decision{actions: []action.Action{action.PatchInstance{To: to}}}
	}
	r := judge(o)
	if r.flip && o.failed == nil {
		return decision{actions: []action.Action{action.PatchMachine{To: flipped(o.vm)}}}
	}
	d := decision{actions: release(o)}
	if o.failed == nil && r.step != stop { // a VM whose disk can't be made can be stopped
		d.actions = append(d.actions, adoptions(o)...)
		d.actions = append(d.actions, creations(r)...)
	}
	d.again = r.retry
	d.look(r.hibernation.Again)
	d.look(r.hibernation.Retry)
	if o.failed == nil {
		d.actions = append(d.actions, r.hibernation.First...)
	}
	d.write(r)
	if o.failed == nil {
		d.actions = append(d.actions, r.hibernation.Then...)
		d.actions = append(d.actions, r.resize()...)
	}
	if r.step == stop && o.failed == nil {
		d.actions = append(d.actions, action.DeleteInstance{Instance: o.own()})
	}
	return d
}

// starts: an instance is made.
func (d decision) starts() bool {
	return slices.ContainsFunc(d.actions, action.Is[action.CreateInstance])
}

// look has the VM looked at again at a time, if that is earlier than another; zero is never.
func (d *decision) look(at time.Time) {
	if !at.IsZero() && (d.again.IsZero() || at.Before(d.again)) {
		d.again = at
	}
}

// write adds the VM's status where it says something new.
func (d *decision) write(r ruling) {
	to := status(r)
	now, later := news(&r.vm.Status, to, r.own(), r.now)
	if now {
		d.actions = append(d.actions, action.WriteStatus{Status: to, Events: eventsOf(r, to)})
	}
	d.look(later)
}

// prepare returns the VM with what admission gives it, or nil if it has all of that.
func prepare(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachine {
	to := vm.DeepCopy()
	identified := run.Identify(&to.Spec.Template.Spec.Domain, vm.Name)
	if slices.Contains(vm.Finalizers, contract.FinalizerMachine) && !identified {
		return nil
	}
	if !slices.Contains(vm.Finalizers, contract.FinalizerMachine) {
		to.Finalizers = append(to.Finalizers, contract.FinalizerMachine)
	}
	return to
}

// creations are the objects that the VM is to be given now.
func creations(r ruling) (actions []action.Action) {
	for _, v := range r.volumes {
		switch {
		case v.missing() && (immediate(r.vm) || r.step == start):
			if r.imports {
				actions = append(actions, action.CreateDataVolume{Template: v.template})
			} else if imports.Fault(v.template, r.vm.Namespace) == "" {
				actions = append(actions, action.ImportClaim{Template: v.template})
			}
		case v.dataVolume != nil && v.dataVolume.waits() && r.wanted() && !v.bindNow:
			actions = append(actions, action.BindClaim{Name: v.name})
		}
	}
	if r.creating == nil {
		return actions
	}
	if r.cluster.Stack.Mutates() {
		r.defaults(r.creating) // the stack's webhooks take the place of the one that would
	}
	actions = append(append(actions, r.preparing...), action.CreateRevision{Revision: r.revision}, action.CreateInstance{Instance: r.creating})
	return append(actions, action.PruneRevisions{Keep: append(typeRevisions(r.vm), r.revision.Name)})
}

// adoptions are of DataVolumes of the VM's templates that nobody controls.
func adoptions(o observed) (actions []action.Action) {
	for _, v := range o.volumes {
		if v.template != nil && v.dataVolume != nil && !v.dataVolume.controlled {
			actions = append(actions, action.AdoptDataVolume{Name: v.name})
		}
	}
	return actions
}

// remove decides about a VM that is being deleted.
func remove(o observed) (d decision) {
	own := o.own()
	orphan := slices.Contains(o.vm.Finalizers, metav1.FinalizerOrphanDependents)
	if own != nil && !orphan {
		d.write(judge(o))
		if o.failed == nil && run.StageOf(own) != run.Deleting {
			d.actions = append(d.actions, action.DeleteInstance{Instance: own})
		}
		d.actions = append(d.actions, release(o)...)
		return d
	}
	if own != nil {
		if own.Spec.StopStrategy != "" && run.StageOf(own) == run.Alive {
			d.actions = append(d.actions, action.DirectInstance{Instance: own, Volumes: own.Spec.UtilityVolumes}) // nobody would know that it is saved
		}
		d.actions = append(d.actions, action.PatchInstance{To: released(own, o.vm)})
	} else {
		d.actions = append(d.actions, release(o)...)
	}
	if orphan {
		d.actions = append(d.actions, action.PruneRevisions{}) // they mean nothing without the VM
	}
	if slices.Contains(o.vm.Finalizers, contract.FinalizerMachine) {
		d.actions = append(d.actions, hibernation.Forget(o.vm)...)
		to := o.vm.DeepCopy()
		to.Finalizers = without(to.Finalizers, contract.FinalizerMachine)
		d.actions = append(d.actions, action.PatchMachine{To: to})
	}
	return d
}

// release takes the VM's finalizer off an instance that no VM needs to see any more: its own
// once that has ended and is being deleted, another's of that name at once, if it is of no
// controller that could.
func release(o observed) []action.Action {
	instance := o.instance
	if instance == nil || !slices.Contains(instance.Finalizers, contract.FinalizerMachine) {
		return nil
	}
	if own := o.own(); own != nil {
		over := run.Ended(own) || !slices.Contains(own.Finalizers, contract.FinalizerInstance)
		if run.StageOf(own) != run.Deleting || !over || o.vm.DeletionTimestamp.IsZero() && hibernation.Unrecorded(o.vm, own) {
			return nil
		}
	} else if owner := metav1.GetControllerOf(instance); owner != nil && owner.Kind != run.MachineKind {
		return nil
	}
	to := instance.DeepCopy()
	to.Finalizers = without(to.Finalizers, contract.FinalizerMachine)
	return []action.Action{action.PatchInstance{To: to}}
}

// released returns an instance that outlives its VM.
func released(instance *kubevirtv1.VirtualMachineInstance, vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineInstance {
	to := instance.DeepCopy()
	to.Finalizers = without(to.Finalizers, contract.FinalizerMachine)
	to.OwnerReferences = slices.DeleteFunc(to.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == vm.UID })
	return to
}

// taken returns the instance of the VM's name as the VM's own, if it is nobody's: of a VM that was
// deleted with --cascade=orphan, or made before its VM. nil: it is not.
func taken(o observed) *kubevirtv1.VirtualMachineInstance {
	if o.instance == nil || !o.instance.DeletionTimestamp.IsZero() || metav1.GetControllerOf(o.instance) != nil {
		return nil
	}
	if s := o.vm.Status.HibernationStatus; s != nil && s.Image != nil {
		return nil // to take it would discard the saved guest
	}
	to := o.instance.DeepCopy()
	to.OwnerReferences = append(to.OwnerReferences, run.OwnedBy(o.vm))
	if !slices.Contains(to.Finalizers, contract.FinalizerMachine) {
		to.Finalizers = append(to.Finalizers, contract.FinalizerMachine)
	}
	return to
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == one })
}
