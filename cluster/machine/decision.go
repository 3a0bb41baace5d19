package machine

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// decision is what is to be done about a VM next, and what follows from its run strategy, its requests and the
// state of its instance.
type decision struct {
	state
	intent
	// hibernation is what becomes of the guest's saved memory.
	hibernation hibernation.Decision
	step        step
	// fault is what the user has to mend before the VM can do as its spec says; nil if nothing.
	fault *action.Failure
	// starts is the run that begins now; nil if none does. preparing is what is made or deleted before it.
	starts    *run.Run
	preparing []action.Action
	// retry is when a start is tried that has to wait for its time; zero if none has.
	retry time.Time
	// actions are carried out in order, up to the first that fails; those that are independent
	// all.
	actions []action.Action
	// again is when the VM has to be looked at though nothing has changed; zero is never.
	again time.Time
}

// do adds actions.
func (d *decision) do(all ...action.Action) { d.actions = append(d.actions, all...) }

// look has the VM looked at again at a time, if that is earlier than another; zero is never.
func (d *decision) look(at time.Time) {
	if !at.IsZero() && (d.again.IsZero() || at.Before(d.again)) {
		d.again = at
	}
}

// view is what the rules of hibernation go by.
func (d decision) view() hibernation.View {
	v := d.state.view()
	v.Strategy, v.Request = d.strategy, d.request()
	return v
}

// wanted: there is an instance, or there is to be one as soon as may be.
func (d decision) wanted() bool {
	return d.stage == run.Alive || d.step == start && d.fault == nil
}

// decideRun applies the run strategy: the decision has no actions yet.
func decideRun(o state) decision {
	d := decision{state: o, intent: intentOf(o)}
	d.hibernation = hibernation.Decide(d.view())
	if !o.vm.DeletionTimestamp.IsZero() {
		d.fault = o.failed
		return d
	}
	d.step = d.next()
	if d.hibernation.Asleep() {
		d.step = nextAsleep(o, d.stage, d.hibernation, d.step)
	}
	d.fault = faultOf(o, d.strategy, d.step)
	if d.step == start && d.fault == nil {
		d.begin()
	}
	return d
}

// nextAsleep is what is next for a VM whose guest is saved, where it would else be the other step:
// the instance that was saved, failed to go on, or must not, goes; another is made when the VM is to run.
func nextAsleep(o state, stage run.Stage, h hibernation.Decision, other step) step {
	switch {
	case stage.Ended(), o.Spoiled != nil && stage == run.Alive:
		return stop
	case stage == run.Absent:
		return choose(h.Starts, false)
	}
	return other
}

// begin sets the run that begins, or why it has to wait.
func (d *decision) begin() {
	if slices.ContainsFunc(d.volumes, func(v volume) bool { return !v.ready() }) {
		return
	}
	if f := d.failures; f != nil && run.Awaited(f.RetryAfterTimestamp, d.now) {
		d.retry = f.RetryAfterTimestamp.Time
		return
	}
	var err error
	if hibernation.Restores(d.view(), d.hibernation) {
		d.starts, err = hibernation.Restore(d.view(), &d.hibernation, d.paused())
	} else if d.starts, err = run.New(d.vm, d.paused()); err == nil {
		d.preparing = hibernation.Mount(d.view(), d.starts.Instance)
	}
	if err != nil {
		d.fault = &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: err.Error()}
	}
	if d.starts != nil && len(d.requests) > 0 {
		d.requests = d.requests[1:]
	}
}

// faultOf returns what keeps the VM from starting until somebody mends it.
func faultOf(o state, strategy kubevirtv1.RunStrategy, next step) *action.Failure {
	switch {
	case o.failed != nil:
		return o.failed
	case o.types.fault != nil:
		return o.types.fault
	case !slices.Contains([]kubevirtv1.RunStrategy{
		kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual,
		kubevirtv1.RunStrategyOnce, kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyHibernate,
	}, strategy):
		return &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: fmt.Sprintf(
			"spec.runStrategy %q is not supported: set Always, RerunOnFailure, Manual, Once, Halted or Hibernate", action.Clip(string(strategy), 64))}
	case next == start && o.instance != nil:
		return blocked(o)
	case o.imports:
		return nil
	}
	for _, v := range o.volumes {
		if !v.missing() {
			continue
		}
		if fault := imports.Fault(v.template, o.vm.Namespace); fault != "" {
			return &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedDataVolumeCreate, Message: action.Clip("spec."+fault, action.Longest)}
		}
	}
	return nil
}

// blocked says that another's instance has the VM's name.
func blocked(o state) *action.Failure {
	whose := "no VirtualMachine's"
	if owner := metav1.GetControllerOf(o.instance); owner != nil {
		whose = fmt.Sprintf("of %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
	}
	return &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: action.Clip(fmt.Sprintf(
		"VirtualMachineInstance %s/%s exists and is not this VM's but %s: delete it, or give the VM another name",
		o.instance.Namespace, o.instance.Name, whose), action.Longest)}
}
