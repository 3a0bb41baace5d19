package instance

import (
	"slices"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/phase"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/status"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// nextLook is when something is due though nothing changes; 0: nothing is.
func nextLook(v *view.View) time.Duration {
	due := lossesDue(v)
	if v.Instance != nil && !v.Final() {
		due = append(due, changesDue(v)...)
	}
	first := time.Duration(0)
	for _, at := range due {
		if in := at.Sub(v.Now); in > 0 && (first == 0 || in < first) {
			first = in
		}
	}
	return first
}

// lossesDue is when pods' nodes are lost if their agents are not heard until then.
func lossesDue(v *view.View) (due []time.Time) {
	for _, p := range append(slices.Clone(v.Others), v.Pod) {
		if p != nil && p.Bound() && p.LostNode() && !p.Report.Current {
			due = append(due, v.Now.Add(view.HeardPatience-p.Report.Silence))
		}
	}
	return due
}

// changesDue is when something of an instance that goes on may change by itself: a container that
// does not come to run its guest, a pod whose events may say why it does not start, a node that is
// not heard of, a pod that is gone: of its VM no agent tells anything by itself.
func changesDue(v *view.View) (due []time.Time) {
	if v.Pod == nil {
		if f := claims.Waits(v); f != nil && f.Reason == condition.ReasonClaimFilling && !v.Deleting() {
			due = append(due, v.Now.Add(fillingAgain)) // DataVolumes are not followed
		}
		return due
	}
	if since, runs := v.Pod.Runs(); runs && v.Recorded() == kubevirtv1.PhaseScheduling {
		due = append(due, since.Add(phase.ScheduledPatience))
	}
	if since, runs := v.Pod.Runs(); runs && v.Recorded() == kubevirtv1.PhaseScheduled && v.Pod.Report.VM == nil {
		due = append(due, since.Add(status.TakenPatience))
	}
	if !trouble.QuietSince(v).IsZero() {
		due = append(due, trouble.NextReading(v))
	}
	if v.Pod.Gone && !v.Pod.Ended() {
		due = append(due, v.Now.Add(confirmAgain))
	}
	if t := view.ComputeEnd(v.Pod.Pod); t != nil && v.Pod.Lives() {
		due = append(due, t.FinishedAt.Add(phase.DisputePatience))
	}
	if n := v.Pod.Node; v.Pod.Bound() && !v.Pod.Report.Current && !n.Renewed.IsZero() {
		next := n.LeaseDue()
		if !next.After(v.Now) { // it may be renewed again, and nobody would tell
			next = v.Now.Add(view.LeaseLimit)
		}
		due = append(due, next)
	}
	if v.Call != nil && !v.Call.Active() && save.Wanted(v) {
		due = append(due, save.TryAgain(v.Call))
	}
	if v.Call != nil && v.Call.Unsure {
		due = append(due, save.SureBy(v.Call))
	}
	if next := attach.NextLook(v); !next.IsZero() {
		due = append(due, next)
	}
	if c := condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionAgentConnected); c != nil && !c.LastProbeTime.IsZero() {
		due = append(due, c.LastProbeTime.Add(status.GuestInterval))
	}
	return due
}

const (
	// fillingAgain is when the DataVolume of a claim is read again that is being filled.
	fillingAgain = 10 * time.Second
)
