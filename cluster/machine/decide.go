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

// decide says what is to be done about a VM next.
func decide(o state) decision {
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
	d := decideRun(o)
	if d.pausedStart() && o.failed == nil {
		return decision{actions: []action.Action{action.PatchMachine{To: flipped(o.vm)}}}
	}
	d.do(release(o)...)
	for _, at := range []time.Time{d.retry, d.hibernation.Again, d.hibernation.Retry} {
		d.look(at)
	}
	if is, until := onProbation(o.own(), o.now); is && d.failures != nil {
		d.look(until)
	}
	if o.failed != nil { // nothing is tried again at once, but the status says so
		d.addStatus()
		return d
	}
	if d.step != stop { // a VM whose disk can't be made can be stopped
		d.do(adoptions(o)...)
		d.do(creations(d)...)
	}
	d.do(d.hibernation.First...)
	d.addStatus()
	d.do(d.hibernation.Then...)
	if d.step == stop {
		d.do(action.DeleteInstance{Instance: o.own()})
	} else {
		d.do(mark(o)...)
		d.do(resize(o)...)
	}
	return d
}

// addStatus adds the VM's status where it says something new.
func (d *decision) addStatus() {
	to := status(*d)
	now, later := news(&d.vm.Status, to, d.own(), d.now)
	if now {
		d.do(action.WriteStatus{Status: to, Events: eventsOf(*d, to)})
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
func creations(d decision) (actions []action.Action) {
	for _, v := range d.volumes {
		switch {
		case v.missing() && (immediate(d.vm) || d.step == start):
			if d.imports {
				actions = append(actions, action.CreateDataVolume{Template: v.template})
			} else if imports.Fault(v.template, d.vm.Namespace) == "" {
				actions = append(actions, action.ImportClaim{Template: v.template})
			}
		case v.dataVolume != nil && v.dataVolume.waits() && d.wanted() && !v.bindNow:
			actions = append(actions, action.BindClaim{Name: v.name})
		}
	}
	if d.starts == nil {
		return actions
	}
	if d.cluster.Stack.Mutates() {
		d.defaults(d.starts.Instance) // the stack's webhooks take the place of the one that would
	}
	actions = append(append(actions, d.preparing...), action.CreateRevision{Revision: d.starts.Revision}, action.CreateInstance{Instance: d.starts.Instance})
	return append(actions, action.PruneRevisions{Keep: append(typeRevisions(d.vm), d.starts.Revision.Name)})
}

// adoptions are of DataVolumes of the VM's templates that nobody controls.
func adoptions(o state) (actions []action.Action) {
	for _, v := range o.volumes {
		if v.template != nil && v.dataVolume != nil && !v.dataVolume.controlled {
			actions = append(actions, action.AdoptDataVolume{Name: v.name})
		}
	}
	return actions
}

// remove decides about a VM that is being deleted.
func remove(o state) decision {
	d := decideRun(o)
	own := o.own()
	orphan := slices.Contains(o.vm.Finalizers, metav1.FinalizerOrphanDependents)
	if own != nil && !orphan {
		d.addStatus()
		if o.failed == nil && run.StageOf(own) != run.Deleting {
			d.do(action.DeleteInstance{Instance: own})
		}
		d.do(release(o)...)
		return d
	}
	if own != nil {
		if own.Spec.StopStrategy != "" && run.StageOf(own) == run.Alive {
			d.do(action.DirectInstance{Instance: own, Volumes: own.Spec.UtilityVolumes}) // nobody would know that it is saved
		}
		d.do(action.PatchInstance{To: released(own, o.vm)})
	} else {
		d.do(release(o)...)
	}
	if orphan {
		d.do(action.PruneRevisions{}) // they mean nothing without the VM
	}
	if slices.Contains(o.vm.Finalizers, contract.FinalizerMachine) {
		d.do(hibernation.Forget(o.vm)...)
		to := o.vm.DeepCopy()
		to.Finalizers = without(to.Finalizers, contract.FinalizerMachine)
		d.do(action.PatchMachine{To: to})
	}
	return d
}

// release takes the VM's finalizer off an instance that no VM needs to see any more: its own
// once that has ended and is being deleted, another's of that name at once, if it is of no
// controller that could.
func release(o state) []action.Action {
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
func taken(o state) *kubevirtv1.VirtualMachineInstance {
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
