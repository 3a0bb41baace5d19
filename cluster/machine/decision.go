package machine

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// ruling is what follows from the run strategy, the requests and the state of the instance.
type ruling struct {
	observed
	strategy kubevirtv1.RunStrategy
	state    run.Stage
	// fresh: the strategy is another than the one last acted on.
	fresh    bool
	requests []kubevirtv1.StateChangeRequest
	failures *kubevirtv1.StartFailure
	// flip: the VM's run strategy becomes Always, as somebody asked for a paused start.
	flip bool
	step step
	// hibernation is what becomes of the guest's saved memory.
	hibernation hibernation.Decision
	// preparing is what is to be made or deleted before the instance is made.
	preparing []action.Action
	// creating is the instance that is made now, with its revision; nil if none is.
	creating *kubevirtv1.VirtualMachineInstance
	revision *appsv1.ControllerRevision
	// retry is when a start is tried that has to wait for its time; zero if none has.
	retry time.Time
	// fault is what the user has to mend before the VM can do as its spec says; nil if nothing.
	fault *action.Failure
}

// view is what the rules of hibernation go by.
func (r ruling) view() hibernation.View { return r.observed.view(r.strategy, r.requests) }

// judge applies the run strategy.
func judge(o observed) ruling {
	own := o.own()
	r := ruling{observed: o, strategy: strategyOf(o.vm), state: run.StageOf(own)}
	r.fresh = o.vm.Status.RunStrategy != r.strategy
	r.requests = pending(o.vm.Status.StateChangeRequests, r.strategy, own)
	r.failures = countFailures(o.vm.Status.StartFailure, r.strategy, own, o.now)
	if r.strategy == kubevirtv1.RunStrategyRerunOnFailure && r.state == run.Failed && len(r.requests) == 0 && !run.NotResumed(own) {
		// Once the instance is deleted, nothing else says that it failed.
		r.requests = []kubevirtv1.StateChangeRequest{{Action: kubevirtv1.StateChangeStart}}
	}
	r.hibernation = hibernation.Decide(r.view())
	if !o.vm.DeletionTimestamp.IsZero() {
		r.fault = o.failed
		return r
	}
	request := first(r.requests)
	r.flip = r.strategy == kubevirtv1.RunStrategyHalted && r.state == run.Absent && request == kubevirtv1.StateChangeStart
	r.step = next(r.strategy, r.state, request, r.fresh)
	if r.hibernation.Asleep() {
		r.step = nextAsleep(r)
	}
	r.fault = r.faults()
	if r.step == start {
		r.create()
	}
	return r
}

// nextAsleep is what is next for a VM whose guest is saved, where it would else be the other step:
// the instance that was saved, failed to go on, or must not, goes; another is made when the VM is to run.
func nextAsleep(r ruling) step {
	switch {
	case r.state.Ended(), r.Spoiled != nil && r.state == run.Alive:
		return stop
	case r.state == run.Absent:
		return choose(r.hibernation.Starts, false)
	}
	return r.step
}

// create sets what is made for a start, or why it has to wait.
func (r *ruling) create() {
	if r.fault != nil || slices.ContainsFunc(r.volumes, func(v volume) bool { return !v.ready() }) {
		return
	}
	if f := r.failures; f != nil && run.Awaited(f.RetryAfterTimestamp, r.now) {
		r.retry = f.RetryAfterTimestamp.Time
		return
	}
	made, err := r.newRun()
	if err != nil {
		r.fault = &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: err.Error()}
	}
	if made == nil {
		return
	}
	r.creating, r.revision = made.Instance, made.Revision
	if len(r.requests) > 0 {
		r.requests = r.requests[1:]
	}
}

// newRun returns the run that begins: its guest goes on, or boots. It is nil where the guest can't go on, and the
// hibernation says why.
func (r *ruling) newRun() (*run.Run, error) {
	paused := len(r.requests) > 0 && startsPaused(r.requests[0])
	if hibernation.Restores(r.view(), r.hibernation) {
		return hibernation.Restore(r.view(), &r.hibernation, paused)
	}
	made, err := run.New(r.vm, paused)
	if err == nil {
		r.preparing = hibernation.Mount(r.view(), made.Instance)
	}
	return made, err
}

// faults returns what keeps the VM from starting until somebody mends it.
func (r *ruling) faults() *action.Failure {
	switch {
	case r.failed != nil:
		return r.failed
	case r.types.fault != nil:
		return r.types.fault
	case !slices.Contains([]kubevirtv1.RunStrategy{
		kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual,
		kubevirtv1.RunStrategyOnce, kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyHibernate,
	}, r.strategy):
		return &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: fmt.Sprintf(
			"spec.runStrategy %q is not supported: set Always, RerunOnFailure, Manual, Once, Halted or Hibernate", action.Clip(string(r.strategy), 64))}
	case r.step == start && r.instance != nil:
		return blocked(r.observed)
	case r.imports:
		return nil
	}
	for _, v := range r.volumes {
		if !v.missing() {
			continue
		}
		if fault := imports.Fault(v.template, r.vm.Namespace); fault != "" {
			return &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedDataVolumeCreate, Message: action.Clip("spec."+fault, action.Longest)}
		}
	}
	return nil
}

// blocked says that another's instance has the VM's name.
func blocked(o observed) *action.Failure {
	whose := "no VirtualMachine's"
	if owner := metav1.GetControllerOf(o.instance); owner != nil {
		whose = fmt.Sprintf("of %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
	}
	return &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedCreate, Message: action.Clip(fmt.Sprintf(
		"VirtualMachineInstance %s/%s exists and is not this VM's but %s: delete it, or give the VM another name",
		o.instance.Namespace, o.instance.Name, whose), action.Longest)}
}

// wanted: there is an instance, or there is to be one as soon as may be.
func (r ruling) wanted() bool {
	return r.state == run.Alive || r.step == start && r.fault == nil
}
