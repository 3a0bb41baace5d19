package save

import (
	"maps"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	// FirstTry and lastTry are how long after a failure a guest is saved again: twice as long
	// after each.
	FirstTry = 10 * time.Second
	lastTry  = 5 * time.Minute
	// EndsWithin is how long a guest may go on after it has been saved or has begun to suspend
	// itself, before that is asked for again.
	EndsWithin = 5 * time.Minute
)

// watchedClaims are the claims of the guest's disks that do not show whether anybody writes to them once it
// is saved.
func watchedClaims(v *view.View) []string {
	recorded, block := convert.RecordedBlock(v.Instance), convert.Input{Claims: v.Claims}.IsBlock
	claims := slices.Sorted(maps.Values(convert.DiskClaims(v.Instance)))
	return slices.DeleteFunc(slices.Compact(claims), func(c string) bool { return !recorded(c) && !block(c) })
}

// Wanted: the call is one that is wanted now.
func Wanted(v *view.View) bool {
	if v.Call == nil || v.Pod == nil || v.Call.UID != v.Pod.UID {
		return false
	}
	suspends := v.Call.Directory == ""
	switch v.StopStrategy() {
	case kubevirtv1.HibernateSave:
		return !suspends
	case kubevirtv1.HibernateSuspendToDisk:
		return suspends
	}
	return false
}

// Cancel ends a call that nobody wants any more, also of an instance that is gone.
func Cancel(v *view.View) action.Action {
	c := v.Call
	if c == nil || c.Active() && c.Cancelled || Wanted(v) {
		return nil
	}
	if c.Unsure && !c.Active() && v.Pod != nil && !v.Final() && v.Now.Before(SureBy(c)) {
		return nil
	}
	return action.CancelSave{}
}

// Start comes after the status that says where the guest is saved to: however it ends, that is
// known then.
func Start(v *view.View) action.Action {
	if !startable(v, v.Recorded()) {
		return nil
	}
	r := saves.Request{Pod: v.Pod.Name, UID: v.Pod.UID, Node: v.Pod.Spec.NodeName, Urgent: v.Pod.Node.ShuttingDown}
	if v.StopStrategy() == kubevirtv1.HibernateSuspendToDisk {
		return action.Save{Request: r}
	}
	volume := convert.HibernationVolume(v.Instance)
	directory := RecordedTarget(&v.Instance.Status, volume.Name)
	if directory == "" {
		return nil
	}
	r.Directory, r.Watched, r.Instance = directory, watchedClaims(v), v.Instance.UID
	if attach.MountedFromStart(v.Pod.Pod, volume.ClaimName) {
		r.Directory = path.Join(contract.HibernationFolder, directory)
	} else {
		r.Attachment = attach.Pod(v, volume.ClaimName).UID
	}
	return action.Save{Request: r}
}

// startable: a call may begin now, of an instance in that phase.
func startable(v *view.View, phase kubevirtv1.Phase) bool {
	if phase != kubevirtv1.PhaseRunning || v.StopStrategy() == "" || v.Pod == nil || v.Pod.Gone || v.Pod.Deleting() || v.Pod.Ended() || !GoesOn(v) {
		return false
	}
	if v.Pod.Report.VM.GetStatus().GetState() == nodev1.State_STATE_STOPPING {
		return false
	}
	if v.Call != nil && (v.Call.Active() || !Wanted(v) || v.Now.Before(TryAgain(v.Call))) {
		return false
	}
	return v.StopStrategy() == kubevirtv1.HibernateSuspendToDisk || v.StopStrategy() == kubevirtv1.HibernateSave && attach.Ready(v)
}

// GoesOn: the agent says that the guest runs, is paused as somebody wants it, or shuts down.
// Whatever was under way to save it has been undone then.
func GoesOn(v *view.View) bool {
	if v.Pod == nil || !v.Pod.Report.Current {
		return false
	}
	switch v.Pod.Report.VM.GetStatus().GetState() {
	case nodev1.State_STATE_RUNNING, nodev1.State_STATE_PAUSED, nodev1.State_STATE_STOPPING:
		return true
	}
	return false
}

// SureBy is when a save that was cut off shows in the agent's report, or has not happened.
func SureBy(c *saves.Call) time.Time { return c.At.Add(FirstTry).Truncate(time.Second) }

// Unresolved: a call is under way, or one was, and it is not known that the guest goes on: it may
// have been saved.
func Unresolved(v *view.View) bool {
	if v.Call != nil && (v.Call.Active() || v.Call.Unsure && v.Now.Before(SureBy(v.Call))) {
		return true
	}
	return !GoesOn(v) && slices.ContainsFunc(v.Instance.Status.VolumeStatus, func(s kubevirtv1.VolumeStatus) bool { return IsTarget(v, s) })
}

// IsTarget: the guest's memory may have been written to the volume, by its status.
func IsTarget(v *view.View, s kubevirtv1.VolumeStatus) bool {
	h, from := s.HibernationInfo, convert.RestoreFrom(v.Instance)
	return h != nil && h.TargetFileName != "" && (from == nil || h.ClaimName != from.ClaimName || h.TargetFileName != from.Directory)
}

// TryAgain is when another call may follow one that has ended.
func TryAgain(c *saves.Call) time.Time {
	wait := lastTry
	switch {
	case c.Err == nil:
		wait = EndsWithin
	case cannotSuspend(c):
	case c.Failures < 6: // 10 s · 2⁵ is more than lastTry
		wait = FirstTry << max(c.Failures-1, 0)
	}
	return c.At.Add(min(wait, lastTry)).Truncate(time.Second).Add(time.Second)
}

func cannotSuspend(c *saves.Call) bool {
	return c.Directory == "" && status.Code(c.Err) == codes.FailedPrecondition
}
