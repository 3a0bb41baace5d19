package view

import (
	"slices"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// Ending is how the VM's shim says that it ended, if the container ended with that exit code: 0, or any other.
func (v *View) Ending(well bool) contract.Ending {
	t := ComputeEnd(v.Pod.Pod)
	if t == nil || (t.ExitCode == 0) != well {
		return contract.Ending{}
	}
	return contract.ReadEnding(t.Message)
}

// Ran: the guest has been seen to run, or has ended in a way that says so.
func (v *View) Ran(phase kubevirtv1.Phase) bool {
	return phase == kubevirtv1.PhaseRunning || Entered(&v.Instance.Status, kubevirtv1.PhaseRunning) || IsFinal(phase) && v.ranUnseen()
}

// ranUnseen: how the VM ended, by its agent's or its shim's word, says that its guest ran, though nobody saw that. That a
// container ended well does not: one that was ended before its guest ran does, too.
func (v *View) ranUnseen() bool {
	if v.Pod == nil {
		return false
	}
	switch v.Pod.Report.VM.GetStatus().GetEndReason() {
	case nodev1.EndReason_END_REASON_SHUTDOWN, nodev1.EndReason_END_REASON_SAVED, nodev1.EndReason_END_REASON_SUSPENDED,
		nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER, nodev1.EndReason_END_REASON_PANICKED:
		return true
	}
	well, failed := []string{contract.GuestShutdown, contract.GuestSuspended, contract.GuestSaved}, []string{contract.GuestPanicked}
	return slices.Contains(well, v.Ending(true).Reason) || slices.Contains(failed, v.Ending(false).Reason)
}
