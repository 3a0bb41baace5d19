package machine

import (
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// step is what a run strategy asks for next.
type step int

const (
	stay step = iota
	start
	stop
)

// running returns the field that run strategies were before they had names.
func running(vm *kubevirtv1.VirtualMachine) **bool {
	//lint:ignore SA1019 users' manifests still have it
	return &vm.Spec.Running
}

// flipped returns a halted VM with the run strategy by which a request to start it is
// honoured.
func flipped(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachine {
	to := vm.DeepCopy()
	if to.Spec.RunStrategy != nil {
		*to.Spec.RunStrategy = kubevirtv1.RunStrategyAlways
	} else {
		**running(to) = true
	}
	return to
}

// intent is what a VM's run strategy and its requests ask for, by where its instance is.
type intent struct {
	strategy kubevirtv1.RunStrategy
	stage    run.Stage
	// switched: the strategy is another than the one last acted on.
	switched bool
	// requests are those that have not been carried out, the next one first.
	requests []kubevirtv1.StateChangeRequest
	// failures are the starts that have failed in a row.
	failures *kubevirtv1.StartFailure
}

func intentOf(o state) intent {
	own := o.own()
	i := intent{strategy: kubevirtv1.RunStrategyOf(&o.vm.Spec), stage: run.StageOf(own)}
	i.switched = o.vm.Status.RunStrategy != i.strategy
	i.requests = pending(o.vm.Status.StateChangeRequests, i.strategy, own)
	i.failures = countFailures(o.vm.Status.StartFailure, i.strategy, own, o.now)
	if i.strategy == kubevirtv1.RunStrategyRerunOnFailure && i.stage == run.Failed && len(i.requests) == 0 && !run.NotResumed(own) {
		// Once the instance is deleted, nothing else says that it failed.
		i.requests = []kubevirtv1.StateChangeRequest{{Action: kubevirtv1.StateChangeStart}}
	}
	return i
}

// request is the next one, or empty.
func (i intent) request() kubevirtv1.StateChange {
	if len(i.requests) == 0 {
		return ""
	}
	return i.requests[0].Action
}

// paused: the guest is to be held before its first instruction.
func (i intent) paused() bool { return len(i.requests) > 0 && startsPaused(i.requests[0]) }

// pausedStart: somebody has asked for a paused start of a halted VM.
func (i intent) pausedStart() bool {
	return i.strategy == kubevirtv1.RunStrategyHalted && i.stage == run.Absent && i.request() == kubevirtv1.StateChangeStart
}

// next is what the run strategy asks for, given the stage of the instance and the first request.
func (i intent) next() step {
	s, request := i.stage, i.request()
	if s == run.Deleting {
		return stay
	}
	if s == run.Alive && request == kubevirtv1.StateChangeStop {
		return stop
	}
	switch i.strategy {
	case kubevirtv1.RunStrategyAlways:
		return choose(s == run.Absent, s.Ended())
	case kubevirtv1.RunStrategyRerunOnFailure:
		return choose(s == run.Absent && (i.switched || request == kubevirtv1.StateChangeStart), s.Ended())
	case kubevirtv1.RunStrategyManual:
		return choose(s == run.Absent && request == kubevirtv1.StateChangeStart, s.Ended() && request != "")
	case kubevirtv1.RunStrategyOnce:
		return choose(s == run.Absent && i.switched, false)
	case kubevirtv1.RunStrategyHalted:
		return choose(false, s != run.Absent)
	case kubevirtv1.RunStrategyHibernate:
		return choose(false, s.Ended())
	}
	return stay
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

// pending returns the requests that have not been carried out, the next one first. One that
// can't be carried out under the run strategy is dropped, so that it doesn't keep others from
// being queued.
func pending(requests []kubevirtv1.StateChangeRequest, strategy kubevirtv1.RunStrategy, own *kubevirtv1.VirtualMachineInstance) []kubevirtv1.StateChangeRequest {
	for len(requests) > 0 && carriedOut(requests[0], strategy, own) {
		requests = requests[1:]
	}
	return requests
}

func carriedOut(r kubevirtv1.StateChangeRequest, strategy kubevirtv1.RunStrategy, own *kubevirtv1.VirtualMachineInstance) bool {
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

// countFailures returns the starts that have failed in a row, with the instance's if it is
// one: it ended, and never ran, or ran no longer than its liveness probe needs to end it. One whose guest shut down at once has not failed, but Always is not
// to start it over and over. An instance that is being deleted says nothing.
func countFailures(so *kubevirtv1.StartFailure, strategy kubevirtv1.RunStrategy, own *kubevirtv1.VirtualMachineInstance, now time.Time) *kubevirtv1.StartFailure {
	switch strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce:
	default:
		return nil
	}
	unproven, _ := onProbation(own, now)
	switch {
	case run.NotResumed(own):
		return so // nobody tried to boot the guest
	case own != nil && run.Ran(own) && !unproven, strategy != kubevirtv1.RunStrategyAlways && run.StageOf(own) == run.Succeeded:
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
