package instance

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	// firstTry and lastTry are how long after a failure a guest is saved again: twice as long
	// after each.
	firstTry = 10 * time.Second
	lastTry  = 5 * time.Minute
	// endsWithin is how long a guest may go on after it has been saved or has begun to suspend
	// itself, before that is asked for again.
	endsWithin = 5 * time.Minute
)

// directoryTime is how the time is written in the name of an image's directory, and
// directoryName bounds the VM's name in it.
const (
	directoryTime = "20060102T150405Z"
	directoryName = 200
)

// directoryPrefix is what the names of all directories of a VM's images begin with.
func directoryPrefix(vm string) string { return "restore-" + condition.Clip(vm, directoryName) + "-" }

// ours: the directory was named here for an image of this VM.
func ours(directory, vm string) bool {
	at, is := strings.CutPrefix(directory, directoryPrefix(vm))
	_, err := time.Parse(directoryTime, at)
	return is && err == nil
}

// watchedClaims are the claims of the guest's disks that do not show whether anybody writes to them once it
// is saved.
func watchedClaims(o *view.View) []string {
	recorded, block := convert.RecordedBlock(o.Instance), convert.Input{Claims: o.Claims}.IsBlock
	claims := slices.Sorted(maps.Values(convert.DiskClaims(o.Instance)))
	return slices.DeleteFunc(slices.Compact(claims), func(c string) bool { return !recorded(c) && !block(c) })
}

// callWanted: the call is one that is wanted now.
func callWanted(o *view.View) bool {
	if o.Call == nil || o.Pod == nil || o.Call.UID != o.Pod.UID {
		return false
	}
	suspends := o.Call.Directory == ""
	switch o.StopStrategy() {
	case kubevirtv1.HibernateSave:
		return !suspends
	case kubevirtv1.HibernateSuspendToDisk:
		return suspends
	}
	return false
}

// cancelSave ends a call that nobody wants any more, also of an instance that is gone.
func cancelSave(o *view.View) action.Action {
	c := o.Call
	if c == nil || c.Active() && c.Cancelled || callWanted(o) {
		return nil
	}
	if c.Unsure && !c.Active() && o.Pod != nil && !o.Final() && o.Now.Before(sureBy(c)) {
		return nil
	}
	return action.CancelSave{}
}

// startSave comes after the status that says where the guest is saved to: however it ends, that is
// known then.
func startSave(o *view.View) action.Action {
	if !startable(o, o.Recorded()) {
		return nil
	}
	r := saves.Request{Pod: o.Pod.Name, UID: o.Pod.UID, Node: o.Pod.Spec.NodeName, Urgent: o.Pod.Node.ShuttingDown}
	if o.StopStrategy() == kubevirtv1.HibernateSuspendToDisk {
		return action.Save{Request: r}
	}
	v := convert.HibernationVolume(o.Instance)
	directory := recordedTarget(&o.Instance.Status, v.Name)
	if directory == "" {
		return nil
	}
	r.Directory, r.Watched, r.Instance = directory, watchedClaims(o), o.Instance.UID
	if attach.MountedFromStart(o.Pod.Pod, v.ClaimName) {
		r.Directory = path.Join(contract.HibernationFolder, directory)
	} else {
		r.Attachment = attach.Pod(o, v.ClaimName).UID
	}
	return action.Save{Request: r}
}

// startable: a call may begin now, of an instance in that phase.
func startable(o *view.View, phase kubevirtv1.Phase) bool {
	if phase != kubevirtv1.PhaseRunning || o.StopStrategy() == "" || o.Pod == nil || o.Pod.Gone || o.Pod.Deleting() || o.Pod.Ended() || !goesOn(o) {
		return false
	}
	if o.Pod.Report.VM.GetStatus().GetState() == nodev1.State_STATE_STOPPING {
		return false
	}
	if o.Call != nil && (o.Call.Active() || !callWanted(o) || o.Now.Before(tryAgain(o.Call))) {
		return false
	}
	return o.StopStrategy() == kubevirtv1.HibernateSuspendToDisk || o.StopStrategy() == kubevirtv1.HibernateSave && attach.Ready(o)
}

// goesOn: the agent says that the guest runs, is paused as somebody wants it, or shuts down.
// Whatever was under way to save it has been undone then.
func goesOn(o *view.View) bool {
	if o.Pod == nil || !o.Pod.Report.Current {
		return false
	}
	switch o.Pod.Report.VM.GetStatus().GetState() {
	case nodev1.State_STATE_RUNNING, nodev1.State_STATE_PAUSED, nodev1.State_STATE_STOPPING:
		return true
	}
	return false
}

// sureBy is when a save that was cut off shows in the agent's report, or has not happened.
func sureBy(c *saves.Call) time.Time { return c.At.Add(firstTry).Truncate(time.Second) }

// unresolved: a call is under way, or one was, and it is not known that the guest goes on: it may
// have been saved.
func unresolved(o *view.View) bool {
	if o.Call != nil && (o.Call.Active() || o.Call.Unsure && o.Now.Before(sureBy(o.Call))) {
		return true
	}
	return !goesOn(o) && slices.ContainsFunc(o.Instance.Status.VolumeStatus, func(s kubevirtv1.VolumeStatus) bool { return isTarget(o, s) })
}

// isTarget: the guest's memory may have been written to the volume, by its status.
func isTarget(o *view.View, s kubevirtv1.VolumeStatus) bool {
	h, from := s.HibernationInfo, convert.RestoreFrom(o.Instance)
	return h != nil && h.TargetFileName != "" && (from == nil || h.ClaimName != from.ClaimName || h.TargetFileName != from.Directory)
}

// tryAgain is when another call may follow one that has ended.
func tryAgain(c *saves.Call) time.Time {
	wait := lastTry
	switch {
	case c.Err == nil:
		wait = endsWithin
	case cannotSuspend(c):
	case c.Failures < 6: // 10 s · 2⁵ is more than lastTry
		wait = firstTry << max(c.Failures-1, 0)
	}
	return c.At.Add(min(wait, lastTry)).Truncate(time.Second).Add(time.Second)
}

func cannotSuspend(c *saves.Call) bool {
	return c.Directory == "" && status.Code(c.Err) == codes.FailedPrecondition
}

// hibernating is the condition HibernationInProgress of an instance that comes to a phase; nil:
// none. It is False only where the guest is known to go on, or has ended: a claim may be deleted
// then that it was to be saved to.
func hibernating(o *view.View, phase kubevirtv1.Phase, why condition.Fault) *kubevirtv1.Condition {
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
	case (asked == "" || o.Deleting()) && unresolved(o):
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
	ended := o.Call != nil && !o.Call.Active() && callWanted(o) && !startable(o, kubevirtv1.PhaseRunning)
	switch {
	case o.Deleting():
		return condition.Fault{Reason: condition.ReasonNotSaved, Message: "the VM is being deleted"}, true
	case o.Call != nil && o.Call.Active() && callWanted(o), ended && o.Call.Err == nil:
		return underWay(o, o.Call), false // when it has ended its pod ends, too
	case !o.Pod.Report.Current:
		return condition.Fault{Reason: condition.ReasonWaiting, Message: "vmlet's agent on node " + node + " is not heard: the guest is saved when it is; see the agents' pods on that node"}, false
	case !goesOn(o), ended && unresolved(o):
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

// setTargets puts into the status of the volume where the guest's memory goes. What was recorded stays
// until another try begins, or nobody wants one and the guest is known to go on: it may have been
// saved there though the call for it failed.
func setTargets(o *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	v := convert.HibernationVolume(o.Instance)
	for i := range s.VolumeStatus {
		w := &s.VolumeStatus[i]
		last, target := v != nil && w.Name == v.Name, ""
		began := began(o, w.HibernationInfo)
		switch {
		case last && o.StopStrategy() == kubevirtv1.HibernateSave && startable(o, s.Phase):
			target = directoryPrefix(o.Instance.Name) + o.Now.UTC().Format(directoryTime)
		case last && o.StopStrategy() == kubevirtv1.HibernateSave && callWanted(o):
			target = path.Base(o.Call.Directory)
		case isTarget(o, *w) && o.StopStrategy() == "" && !unresolved(o):
			w.HibernationInfo = nil
			continue
		default:
			continue
		}
		w.HibernationInfo = &kubevirtv1.HibernationInfo{ClaimName: v.ClaimName, TargetFileName: target, StartTimestamp: began}
	}
}

// began is when the first try of a save that was Queued began; nil: none has, or it never waited. It
// stays for as long as the save is wanted.
func began(o *view.View, recorded *kubevirtv1.HibernationInfo) *metav1.Time {
	switch {
	case recorded != nil && recorded.StartTimestamp != nil:
		return recorded.StartTimestamp
	case callWanted(o) && o.Call.State != saves.Queued && queued(o):
		return new(metav1.NewTime(o.Call.Begun.UTC().Truncate(time.Second)))
	}
	return nil
}

// queued: the status says that the save waits for its turn.
func queued(o *view.View) bool {
	c := condition.Find(o.Instance.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	return c != nil && c.Reason == condition.ReasonQueued
}

// recordedTarget is the directory that a status has for a volume.
func recordedTarget(s *kubevirtv1.VirtualMachineInstanceStatus, volume string) string {
	for i := range s.VolumeStatus {
		if w := &s.VolumeStatus[i]; w.Name == volume && w.HibernationInfo != nil {
			return w.HibernationInfo.TargetFileName
		}
	}
	return ""
}
