package save

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

// Condition is the condition HibernationInProgress of an instance that comes to a phase; nil:
// none. It is False only where the guest is known to go on, or has ended: a claim may be deleted
// then that it was to be saved to.
func Condition(v *view.View, phase kubevirtv1.Phase, why condition.Fault) *kubevirtv1.Condition {
	asked := v.Instance.Spec.StopStrategy
	say := func(status metav1.ConditionStatus, f condition.Fault) *kubevirtv1.Condition {
		c := condition.New(kubevirtv1.ConditionHibernationInProgress, status, f.Reason, f.Message)
		return &c
	}
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	switch {
	case view.IsFinal(phase) && (why.Reason == condition.ReasonSaved || why.Reason == condition.ReasonSuspended):
		return say(no, why)
	case view.IsFinal(phase) && asked != "":
		return say(no, condition.Fault{Reason: condition.ReasonNotSaved, Message: "the guest ended before it was saved: " + why.Message})
	case view.IsFinal(phase):
		return nil
	case (asked == "" || v.Deleting()) && Unresolved(v):
		return say(yes, condition.Fault{Reason: condition.ReasonCancelling, Message: "the save is being undone: it is not known yet that the guest goes on"})
	case asked == "":
		return nil
	case phase == kubevirtv1.PhaseUnknown:
		return say(yes, condition.Fault{Reason: condition.ReasonWaiting, Message: "it is not known whether the guest runs: " + why.Message})
	case phase != kubevirtv1.PhaseRunning:
		return say(yes, condition.Fault{Reason: condition.ReasonWaiting, Message: "the guest has not started yet: it is saved once it runs"})
	}
	f, failed := saveProgress(v)
	if failed {
		return say(no, f)
	}
	return say(yes, f)
}

// saveProgress is how far the save of a guest is that runs, and whether that is a failure.
func saveProgress(v *view.View) (f condition.Fault, failed bool) {
	node := v.Pod.Spec.NodeName
	ended := v.Call != nil && !v.Call.Active() && Wanted(v) && !startable(v, kubevirtv1.PhaseRunning)
	switch {
	case v.Deleting():
		return condition.Fault{Reason: condition.ReasonNotSaved, Message: "the VM is being deleted"}, true
	case v.Call != nil && v.Call.Active() && Wanted(v), ended && v.Call.Err == nil:
		return underWay(v, v.Call), false // when it has ended its pod ends, too
	case !v.Pod.Report.Current:
		return condition.Fault{Reason: condition.ReasonWaiting, Message: "vmlet's agent on node " + node + " is not heard: the guest is saved when it is; see the agents' pods on that node"}, false
	case !GoesOn(v), ended && Unresolved(v):
		return condition.Fault{Reason: condition.ReasonWaiting, Message: "an earlier save on node " + node + " is being undone: the guest is saved again when it goes on"}, false
	case v.Pod.Deleting():
		return condition.Fault{Reason: condition.ReasonNotSaved, Message: "the VM's pod is being deleted, and the guest shuts down"}, true
	case v.Instance.Spec.StopStrategy != kubevirtv1.HibernateSuspendToDisk && !attach.Ready(v):
		return attach.Progress(v)
	case ended:
		return failure(v, v.Call), true
	}
	return underWay(v, nil), false
}

// underWay says how far a call is; nil: it is about to be made.
func underWay(v *view.View, c *saves.Call) condition.Fault {
	node := v.Pod.Spec.NodeName
	switch {
	case c != nil && c.State == saves.Queued && c.Barred:
		return condition.Fault{Reason: condition.ReasonQueued, Message: "saves of other VMs of namespace " + v.Instance.Namespace + " on node " + node + " write nothing or take long: this one waits for one of them to end; " +
			"look at the claims and pods of the VMs there whose condition HibernationInProgress says so"}
	case c != nil && c.State == saves.Queued && c.Ahead == 1:
		return condition.Fault{Reason: condition.ReasonQueued, Message: "1 save is under way or waiting on node " + node + " before it"}
	case c != nil && c.State == saves.Queued:
		return condition.Fault{Reason: condition.ReasonQueued, Message: fmt.Sprintf("%d saves are under way or waiting on node %s before it", c.Ahead, node)}
	case v.Instance.Spec.StopStrategy == kubevirtv1.HibernateSuspendToDisk:
		return condition.Fault{Reason: condition.ReasonSuspending, Message: "the guest was asked to suspend itself to its own disk"}
	}
	f := condition.Fault{Reason: condition.ReasonSaving, Message: "the guest's memory is written to claim " + convert.HibernationVolume(v.Instance).ClaimName}
	if c != nil && c.Aside && c.Active() {
		f.Message += "; it writes nothing or takes long, and other VMs of node " + node + " no longer wait for it: see that claim's storage"
	}
	return f
}

// failure is why a call failed, and what follows.
func failure(v *view.View, c *saves.Call) condition.Fault {
	node, words := v.Pod.Spec.NodeName, v.ErrorWords(c.Err)
	switch code := status.Code(c.Err); {
	case cannotSuspend(c):
		f := condition.Fault{Reason: condition.ReasonCannotSuspend, Message: "the guest can't suspend itself to disk and goes on: " + words}
		if !unsuspendable(faults.OfError(c.Err)) { // it is the guest itself that can't, not its hardware
			f.Message += "; start qemu-guest-agent in it, give it swap for its memory, or " + convert.SaveInstead
		}
		return f
	case c.Directory == "":
		return condition.Fault{Reason: condition.ReasonSuspendFailed, Message: "the guest was not suspended and goes on: " + words + "; it is asked again"}
	case code == codes.ResourceExhausted:
		return condition.Fault{Reason: condition.ReasonNoSpace, Message: "claim " + convert.HibernationVolume(v.Instance).ClaimName + " has no room for the guest's memory, and the guest goes on: " +
			words + "; enlarge the claim, it is tried again"}
	case code == codes.Unavailable:
		return condition.Fault{Reason: condition.ReasonSaveFailed, Message: "the save on node " + node + " was cut off: " + words + "; it is tried again if the guest goes on"}
	}
	return condition.Fault{Reason: condition.ReasonSaveFailed, Message: "the save on node " + node + " failed, and the guest goes on: " + words + "; it is tried again"}
}

// unsuspendable: the VM can't be suspended to disk, whatever its guest does, and that has been said.
func unsuspendable(why []contract.Fault) bool {
	return slices.ContainsFunc(why, func(f contract.Fault) bool { return f.Reason == contract.FaultSaveInstead })
}
