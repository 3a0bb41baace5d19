package save

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
)

// Condition is the condition HibernationInProgress of an instance that comes to a phase; nil:
// none. It is False only where the guest is known to go on, or has ended: a claim may be deleted
// then that it was to be saved to.
func Condition(o *view.View, phase kubevirtv1.Phase, why condition.Fault) *kubevirtv1.Condition {
	asked := o.Instance.Spec.StopStrategy
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
	case (asked == "" || o.Deleting()) && Unresolved(o):
		return say(yes, condition.Fault{Reason: condition.ReasonCancelling, Message: "the save is being undone: it is not known yet that the guest goes on"})
	case asked == "":
		return nil
	case phase == kubevirtv1.PhaseUnknown:
		return say(yes, condition.Fault{Reason: condition.ReasonWaiting, Message: "it is not known whether the guest runs: " + why.Message})
	case phase != kubevirtv1.PhaseRunning:
		return say(yes, condition.Fault{Reason: condition.ReasonWaiting, Message: "the guest has not started yet: it is saved once it runs"})
	}
	f, failed := saveProgress(o)
	if failed {
		return say(no, f)
	}
	return say(yes, f)
}

// saveProgress is how far the save of a guest is that runs, and whether that is a failure.
func saveProgress(o *view.View) (f condition.Fault, failed bool) {
	node := o.Pod.Spec.NodeName
	ended := o.Call != nil && !o.Call.Active() && Wanted(o) && !startable(o, kubevirtv1.PhaseRunning)
	switch {
	case o.Deleting():
		return condition.Fault{Reason: condition.ReasonNotSaved, Message: "the VM is being deleted"}, true
	case o.Call != nil && o.Call.Active() && Wanted(o), ended && o.Call.Err == nil:
		return underWay(o, o.Call), false // when it has ended its pod ends, too
	case !o.Pod.Report.Current:
		return condition.Fault{Reason: condition.ReasonWaiting, Message: "vmlet's agent on node " + node + " is not heard: the guest is saved when it is; see the agents' pods on that node"}, false
	case !GoesOn(o), ended && Unresolved(o):
		return condition.Fault{Reason: condition.ReasonWaiting, Message: "an earlier save on node " + node + " is being undone: the guest is saved again when it goes on"}, false
	case o.Pod.Deleting():
		return condition.Fault{Reason: condition.ReasonNotSaved, Message: "the VM's pod is being deleted, and the guest shuts down"}, true
	case o.Instance.Spec.StopStrategy != kubevirtv1.HibernateSuspendToDisk && !attach.Ready(o):
		return attach.Progress(o)
	case ended:
		return failure(o, o.Call), true
	}
	return underWay(o, nil), false
}

// underWay says how far a call is; nil: it is about to be made.
func underWay(o *view.View, c *saves.Call) condition.Fault {
	node := o.Pod.Spec.NodeName
	switch {
	case c != nil && c.State == saves.Queued && c.Barred:
		return condition.Fault{Reason: condition.ReasonQueued, Message: "saves of other VMs of namespace " + o.Instance.Namespace + " on node " + node + " write nothing or take long: this one waits for one of them to end; " +
			"look at the claims and pods of the VMs there whose condition HibernationInProgress says so"}
	case c != nil && c.State == saves.Queued && c.Ahead == 1:
		return condition.Fault{Reason: condition.ReasonQueued, Message: "1 save is under way or waiting on node " + node + " before it"}
	case c != nil && c.State == saves.Queued:
		return condition.Fault{Reason: condition.ReasonQueued, Message: fmt.Sprintf("%d saves are under way or waiting on node %s before it", c.Ahead, node)}
	case o.Instance.Spec.StopStrategy == kubevirtv1.HibernateSuspendToDisk:
		return condition.Fault{Reason: condition.ReasonSuspending, Message: "the guest was asked to suspend itself to its own disk"}
	}
	f := condition.Fault{Reason: condition.ReasonSaving, Message: "the guest's memory is written to claim " + convert.HibernationVolume(o.Instance).ClaimName}
	if c != nil && c.Aside && c.Active() {
		f.Message += "; it writes nothing or takes long, and other VMs of node " + node + " no longer wait for it: see that claim's storage"
	}
	return f
}

// failure is why a call failed, and what follows.
func failure(o *view.View, c *saves.Call) condition.Fault {
	node, words := o.Pod.Spec.NodeName, o.ErrorWords(c.Err)
	switch code := status.Code(c.Err); {
	case cannotSuspend(c):
		f := condition.Fault{Reason: condition.ReasonCannotSuspend, Message: "the guest can't suspend itself to disk and goes on: " + words}
		if !strings.Contains(words, convert.SaveInstead) { // it is the guest itself that can't, not its hardware
			f.Message += "; start qemu-guest-agent in it, give it swap for its memory, or " + convert.SaveInstead
		}
		return f
	case c.Directory == "":
		return condition.Fault{Reason: condition.ReasonSuspendFailed, Message: "the guest was not suspended and goes on: " + words + "; it is asked again"}
	case code == codes.ResourceExhausted:
		return condition.Fault{Reason: condition.ReasonNoSpace, Message: "claim " + convert.HibernationVolume(o.Instance).ClaimName + " has no room for the guest's memory, and the guest goes on: " +
			words + "; enlarge the claim, it is tried again"}
	case code == codes.Unavailable:
		return condition.Fault{Reason: condition.ReasonSaveFailed, Message: "the save on node " + node + " was cut off: " + words + "; it is tried again if the guest goes on"}
	}
	return condition.Fault{Reason: condition.ReasonSaveFailed, Message: "the save on node " + node + " failed, and the guest goes on: " + words + "; it is tried again"}
}
