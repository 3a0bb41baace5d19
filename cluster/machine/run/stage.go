package run

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Stage is where a VM's instance is in its life.
type Stage int

const (
	// Absent: there is none, or another's has its name.
	Absent Stage = iota
	// Alive: it is about to run, runs, or is not heard of.
	Alive
	// Succeeded and Failed: it has ended.
	Succeeded
	Failed
	// Deleting: it is being deleted. How it ends does not matter any more.
	Deleting
)

// StageOf returns the stage of a VM's instance, nil if it has none.
func StageOf(instance *kubevirtv1.VirtualMachineInstance) Stage {
	switch {
	case instance == nil:
		return Absent
	case !instance.DeletionTimestamp.IsZero():
		return Deleting
	case instance.Status.Phase == kubevirtv1.PhaseSucceeded:
		return Succeeded
	case instance.Status.Phase == kubevirtv1.PhaseFailed:
		return Failed
	}
	return Alive
}

// Ended: the instance has ended, and nobody deletes it yet.
func (s Stage) Ended() bool { return s == Succeeded || s == Failed }

// Ended says whether an instance has ended, also one that is being deleted.
func Ended(instance *kubevirtv1.VirtualMachineInstance) bool {
	return instance.Status.Phase == kubevirtv1.PhaseSucceeded || instance.Status.Phase == kubevirtv1.PhaseFailed
}

// Ran says whether an instance has been running at any time.
func Ran(instance *kubevirtv1.VirtualMachineInstance) bool {
	if instance.Status.Phase == kubevirtv1.PhaseRunning {
		return true
	}
	for _, t := range instance.Status.PhaseTransitionTimestamps {
		if t.Phase == kubevirtv1.PhaseRunning {
			return true
		}
	}
	return false
}

// NotResumed: the instance was to go on from a saved guest, and has not yet.
func NotResumed(own *kubevirtv1.VirtualMachineInstance) bool {
	return own != nil && own.Spec.RestoreFrom != nil && !Ran(own)
}

// Steady: the guest runs or is paused, and nobody moves it.
func Steady(own *kubevirtv1.VirtualMachineInstance) bool {
	m := own.Status.MigrationState
	return StageOf(own) == Alive && own.Status.Phase == kubevirtv1.PhaseRunning && (m == nil || m.Completed || m.Failed)
}

// VMCondition returns an instance's condition as its VM has it. The instance's generation would
// mean nothing there.
func VMCondition(c kubevirtv1.Condition) kubevirtv1.Condition {
	return kubevirtv1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime}
}
