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
func nextLook(o *view.View) time.Duration {
	due := lossesDue(o)
	if o.Instance != nil && !o.Final() {
		due = append(due, changesDue(o)...)
	}
	first := time.Duration(0)
	for _, at := range due {
		if in := at.Sub(o.Now); in > 0 && (first == 0 || in < first) {
			first = in
		}
	}
	return first
}

// lossesDue is when pods' nodes are lost if their agents are not heard until then.
func lossesDue(o *view.View) (due []time.Time) {
	for _, p := range append(slices.Clone(o.Others), o.Pod) {
		if p != nil && p.Bound() && p.LostNode() && !p.Report.Current {
			due = append(due, o.Now.Add(view.HeardPatience-p.Report.Silence))
		}
	}
	return due
}

// changesDue is when something of an instance that goes on may change by itself: a container that
// does not come to run its guest, a pod whose events may say why it does not start, a node that is
// not heard of, a pod that is gone: of its VM no agent tells anything by itself.
func changesDue(o *view.View) (due []time.Time) {
	if o.Pod == nil {
		if f := claims.Waits(o); f != nil && f.Reason == condition.ReasonClaimFilling && !o.Deleting() {
			due = append(due, o.Now.Add(fillingAgain)) // DataVolumes are not followed
		}
		return due
	}
	if since, runs := o.Pod.Runs(); runs && o.Recorded() == kubevirtv1.PhaseScheduling {
		due = append(due, since.Add(phase.ScheduledPatience))
	}
	if since, runs := o.Pod.Runs(); runs && o.Recorded() == kubevirtv1.PhaseScheduled && o.Pod.Report.VM == nil {
		due = append(due, since.Add(status.TakenPatience))
	}
	if !trouble.QuietSince(o).IsZero() {
		due = append(due, trouble.NextReading(o))
	}
	if o.Pod.Gone && !o.Pod.Ended() {
		due = append(due, o.Now.Add(confirmAgain))
	}
	if t := view.ComputeEnd(o.Pod.Pod); t != nil && o.Pod.Lives() {
		due = append(due, t.FinishedAt.Add(phase.DisputePatience))
	}
	if n := o.Pod.Node; o.Pod.Bound() && !o.Pod.Report.Current && !n.Renewed.IsZero() {
		next := n.LeaseDue()
		if !next.After(o.Now) { // it may be renewed again, and nobody would tell
			next = o.Now.Add(view.LeaseLimit)
		}
		due = append(due, next)
	}
	if o.Call != nil && !o.Call.Active() && save.Wanted(o) {
		due = append(due, save.TryAgain(o.Call))
	}
	if o.Call != nil && o.Call.Unsure {
		due = append(due, save.SureBy(o.Call))
	}
	if next := attach.NextLook(o); !next.IsZero() {
		due = append(due, next)
	}
	if c := condition.Find(o.Instance.Status.Conditions, kubevirtv1.ConditionAgentConnected); c != nil && !c.LastProbeTime.IsZero() {
		due = append(due, c.LastProbeTime.Add(status.GuestInterval))
	}
	return due
}

const (
	// fillingAgain is when the DataVolume of a claim is read again that is being filled.
	fillingAgain = 10 * time.Second
)
