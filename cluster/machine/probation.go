package machine

import (
	"cmp"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
)

// What a probe has that does not say so, as Kubernetes has it, and how much later than its guest's start its first probe
// may be.
const (
	probePeriod   = 10
	probeFailures = 3
	probeMargin   = 40 * time.Second
)

// probation is how long an instance runs until its guest is known to pass its liveness probe: as long as it takes to be
// ended by the first probes, and to shut down.
func probation(own *kubevirtv1.VirtualMachineInstance) time.Duration {
	p := own.Spec.LivenessProbe
	tries := time.Duration(cmp.Or(max(p.FailureThreshold, 0), probeFailures))
	each := time.Duration(max(cmp.Or(p.PeriodSeconds, probePeriod), p.TimeoutSeconds)) * time.Second
	return time.Duration(max(p.InitialDelaySeconds, 0))*time.Second + tries*each + convert.Grace(own) + probeMargin
}

// onProbation: the instance has a liveness probe, and its guest has not run, or did not run, for so long that it is known
// to pass. Until when is set for one that runs. One that was saved has passed.
func onProbation(own *kubevirtv1.VirtualMachineInstance, now time.Time) (is bool, until time.Time) {
	if own == nil || own.Spec.LivenessProbe == nil || own.Spec.RestoreFrom != nil || hibernation.Ended(own) {
		return false, until
	}
	var began, ended time.Time
	for _, t := range own.Status.PhaseTransitionTimestamps {
		switch t.Phase {
		case kubevirtv1.PhaseRunning:
			began = t.PhaseTransitionTimestamp.Time
		case kubevirtv1.PhaseSucceeded, kubevirtv1.PhaseFailed:
			ended = t.PhaseTransitionTimestamp.Time
		}
	}
	if began.IsZero() {
		return false, until
	}
	until = began.Add(probation(own))
	if ended.IsZero() {
		return now.Before(until), until
	}
	return ended.Before(until), time.Time{}
}
