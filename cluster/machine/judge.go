package machine

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// step is what a run strategy asks for next.
type step int

const (
	stay step = iota
	start
	stop
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

// next says what a run strategy asks for, given the state of the instance and the first
// request.
func next(strategy kubevirtv1.RunStrategy, s run.Stage, request kubevirtv1.StateChange, fresh bool) step {
	if s == run.Deleting {
		return stay
	}
	if s == run.Alive && request == kubevirtv1.StateChangeStop {
		return stop
	}
	switch strategy {
	case kubevirtv1.RunStrategyAlways:
		return choose(s == run.Absent, s.Ended())
	case kubevirtv1.RunStrategyRerunOnFailure:
		return choose(s == run.Absent && (fresh || request == kubevirtv1.StateChangeStart), s.Ended())
	case kubevirtv1.RunStrategyManual:
		return choose(s == run.Absent && request == kubevirtv1.StateChangeStart, s.Ended() && request != "")
	case kubevirtv1.RunStrategyOnce:
		return choose(s == run.Absent && fresh, false)
	case kubevirtv1.RunStrategyHalted:
		return choose(false, s != run.Absent)
	case kubevirtv1.RunStrategyHibernate:
		return choose(false, s.Ended())
	}
	return stay
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

func choose(starts, stops bool) step {
	switch {
	case starts:
		return start
	case stops:
		return stop
	}
	return stay
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

// pending returns the requests that have not been carried out, the next one first. One that
// can't be carried out under the run strategy is dropped, so that it doesn't keep others from
// being queued.
func pending(requests []kubevirtv1.StateChangeRequest, strategy kubevirtv1.RunStrategy, own *kubevirtv1.VirtualMachineInstance) []kubevirtv1.StateChangeRequest {
	for len(requests) > 0 && done(requests[0], strategy, own) {
		requests = requests[1:]
	}
	return requests
}

func done(r kubevirtv1.StateChangeRequest, strategy kubevirtv1.RunStrategy, own *kubevirtv1.VirtualMachineInstance) bool {
	if strategy == kubevirtv1.RunStrategyOnce || strategy == kubevirtv1.RunStrategyHibernate {
		return true
	}
	switch r.Action {
	case kubevirtv1.StateChangeStop:
		return r.UID == nil || own == nil || own.UID != *r.UID
	case kubevirtv1.StateChangeStart:
		if strategy == kubevirtv1.RunStrategyHalted && !startsPaused(r) {
			return true
		}
		return run.StageOf(own) == run.Alive
	}
	return true
}

// startsPaused: the guest is to be held before its first instruction.
func startsPaused(r kubevirtv1.StateChangeRequest) bool {
	return r.Action == kubevirtv1.StateChangeStart && r.Data["paused"] == "true"
}

func first(requests []kubevirtv1.StateChangeRequest) kubevirtv1.StateChange {
	if len(requests) == 0 {
		return ""
	}
	return requests[0].Action
}

// countFailures returns the starts that have failed in a row, with the instance's if it is
// one: it ended, and never ran. One whose guest shut down at once has not failed, but Always is not
// to start it over and over. An instance that is being deleted says nothing.
func countFailures(so *kubevirtv1.StartFailure, strategy kubevirtv1.RunStrategy, own *kubevirtv1.VirtualMachineInstance, now time.Time) *kubevirtv1.StartFailure {
	switch strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce:
	default:
		return nil
	}
	switch {
	case run.NotResumed(own):
		return so // nobody tried to boot the guest
	case own != nil && run.Ran(own), strategy != kubevirtv1.RunStrategyAlways && run.StageOf(own) == run.Succeeded:
		return nil
	case !run.StageOf(own).Ended() || so != nil && so.LastFailedVMIUID == own.UID:
		return so
	}
	count := 1
	if so != nil {
		count += min(so.ConsecutiveFailCount, 1000) // somebody else may have written it
	}
	failure := &kubevirtv1.StartFailure{ConsecutiveFailCount: count, LastFailedVMIUID: own.UID}
	if strategy != kubevirtv1.RunStrategyOnce {
		retry := metav1.NewTime(now.Add(backoff(count, own.UID))).Rfc3339Copy()
		failure.RetryAfterTimestamp = &retry
	}
	return failure
}

// backoff is how long the next start waits after so many have failed in a row: the base
// times the square of their number, and up to half as much again, which follows from the
// instance, so that VMs that failed together don't start together. The next leader
// computes the same wait; wait.Backoff keeps a count of its own, and only multiplies.
func backoff(failures int, instance types.UID) time.Duration {
	hash := fnv.New32a()
	hash.Write([]byte(instance))
	delay := run.RetryBase * time.Duration(failures*failures)
	delay += time.Duration(float64(delay) / 2 * float64(hash.Sum32()) / (1 << 32))
	return min(delay, run.RetryMost)
}
