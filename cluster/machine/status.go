package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// status returns the VM's status as it is to be. What others write in it stays.
func status(d decision) *kubevirtv1.VirtualMachineStatus {
	own, restart := d.own(), restartChanges(d.state)
	to := d.vm.Status.DeepCopy()
	to.Created = d.stage == run.Alive || d.stage == run.Deleting && !run.Ended(own) || d.starts != nil
	to.StateChangeRequests, to.StartFailure = d.requests, d.failures
	if d.acted() {
		to.RunStrategy = d.strategy
	}
	to.DesiredGeneration, to.ObservedGeneration = d.vm.Generation, d.vm.Generation
	if own != nil && len(restart) > 0 {
		to.ObservedGeneration = run.Generation(own)
	}
	to.HibernationStatus, to.ResumeStatus = d.hibernation.Status, d.hibernation.Resume
	to.PrintableStatus = printable(d)
	to.Conditions = conditions(d, restart)
	to.Ready = slices.ContainsFunc(to.Conditions, func(c kubevirtv1.Condition) bool {
		return c.Type == kubevirtv1.ConditionReady && c.Status == metav1.ConditionTrue
	})
	return to
}

// acted says whether the run strategy has been acted on. Those that start a VM when it is
// switched to them have been once there is an instance.
func (d decision) acted() bool {
	switch d.strategy {
	case kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce:
		return d.starts != nil || d.stage == run.Alive || d.stage.Ended()
	}
	return true
}

// conditions are the VM's own, and those of its instance.
func conditions(d decision, restart []string) []kubevirtv1.Condition {
	all := []kubevirtv1.Condition{readiness(d)}
	if f := d.failing(); f != nil {
		all = append(all, d.condition(kubevirtv1.ConditionFailure, f.Reason, f.Message))
	}
	if len(restart) > 0 {
		all = append(all, d.condition(kubevirtv1.ConditionRestartRequired, reasonTemplateChanged, fmt.Sprintf(
			"%s changed since the guest was started: restart the VM to apply it", strings.Join(restart, ", "))))
	}
	all = append(all, hibernation.Conditions(d.view(), d.hibernation, d.starts != nil)...)
	owned := []string{
		kubevirtv1.ConditionReady, kubevirtv1.ConditionFailure, kubevirtv1.ConditionRestartRequired, kubevirtv1.ConditionManualRecoveryRequired,
		kubevirtv1.ConditionHibernated, kubevirtv1.ConditionHibernationInProgress, kubevirtv1.ConditionHibernationRestoreInProgress,
	}
	if c := kubevirtv1.FindCondition(d.vm.Status.Conditions, kubevirtv1.ConditionManualRecoveryRequired); c != nil {
		all = append(all, *c) // anyone who set it takes it away
	}
	if own := d.own(); own != nil {
		for _, c := range own.Status.Conditions {
			if !slices.Contains(owned, c.Type) {
				all = append(all, run.VMCondition(c))
			}
		}
	}
	for i := range all {
		since(&all[i], d.vm.Status.Conditions, d.now)
	}
	slices.SortFunc(all, func(a, b kubevirtv1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return all
}

// failing is what the condition Failure says: what somebody has to mend, else why the last
// starts failed, until the guest runs; nil if there is neither.
func (d decision) failing() *action.Failure {
	known, own := kubevirtv1.FindCondition(d.vm.Status.Conditions, kubevirtv1.ConditionFailure), d.own()
	switch {
	case d.fault != nil:
		return d.fault
	case d.failures == nil, d.stage == run.Succeeded:
		return nil // after a guest that shut down at once the next start waits, and that is all
	case d.stage == run.Failed && own.UID == d.failures.LastFailedVMIUID:
		return &action.Failure{Reason: reasonFailedStart, Event: reasonFailedStart, Message: action.Clip(failedStart(d.failures, own), action.Longest)}
	case known != nil && known.Reason == reasonFailedStart:
		return &action.Failure{Reason: reasonFailedStart, Event: reasonFailedStart, Message: known.Message} // the instance is gone
	}
	return nil
}

// failedStart says why a VM's last instance never ran, and when the next one is made.
func failedStart(f *kubevirtv1.StartFailure, own *kubevirtv1.VirtualMachineInstance) string {
	why := "the VirtualMachineInstance ended before its guest ran"
	for _, of := range []string{kubevirtv1.ConditionReady, kubevirtv1.ConditionSynchronized} {
		if c := kubevirtv1.FindCondition(own.Status.Conditions, of); c != nil && c.Status == metav1.ConditionFalse && c.Message != "" {
			why = c.Message
		}
	}
	times := "the VM's start failed"
	if f.ConsecutiveFailCount > 1 {
		times = fmt.Sprintf("the VM's last %d starts failed", f.ConsecutiveFailCount)
	}
	if f.RetryAfterTimestamp != nil {
		times += ", the next one is at " + f.RetryAfterTimestamp.UTC().Format(time.RFC3339) + " (virtctl restart tries now)"
	}
	return times + ": " + why
}

func (d decision) condition(kind, reason, message string) kubevirtv1.Condition {
	return kubevirtv1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: action.Clip(message, action.Longest), ObservedGeneration: d.vm.Generation}
}

// readiness is the VM's condition Ready: its instance's, if that has one that can be true.
func readiness(d decision) kubevirtv1.Condition {
	no := func(reason, message string) kubevirtv1.Condition {
		return kubevirtv1.Condition{Type: kubevirtv1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	own := d.own()
	switch {
	case d.starts != nil:
		return no(reasonNoInstanceCondition, "the VirtualMachineInstance has just been created")
	case own == nil:
		return no(reasonNoInstance, action.Clip("the VM has no VirtualMachineInstance"+d.because(), action.Longest))
	}
	c := kubevirtv1.FindCondition(own.Status.Conditions, kubevirtv1.ConditionReady)
	switch {
	case c == nil:
		return no(reasonNoInstanceCondition, "the VirtualMachineInstance has no condition Ready yet")
	case c.Status == metav1.ConditionTrue && own.Status.Phase == kubevirtv1.PhaseUnknown:
		return no(kubevirtv1.ReasonNodeUnresponsive, "it is unknown whether the guest runs: see the VirtualMachineInstance")
	}
	return run.VMCondition(*c)
}

// because is why there is no instance, if there ought to be one.
func (d decision) because() string {
	if f := d.failing(); f != nil {
		return ": " + f.Message
	}
	for _, v := range d.volumes {
		if v.dataVolume != nil && v.dataVolume.fault != "" {
			return ": " + v.dataVolume.what() + " " + v.name + ": " + v.dataVolume.fault
		}
	}
	for _, v := range d.volumes {
		if v.dataVolume != nil && v.dataVolume.filling != nil && !v.ready() && (d.wanted() || !v.dataVolume.waits()) {
			return ": claim " + v.name + " " + v.dataVolume.filling.Waiting()
		}
	}
	return ""
}

// since sets when a condition's status last changed, unless its instance says so.
func since(c *kubevirtv1.Condition, before []kubevirtv1.Condition, now time.Time) {
	if !c.LastTransitionTime.IsZero() {
		return
	}
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	if b := kubevirtv1.FindCondition(before, c.Type); b != nil && b.Status == c.Status && !b.LastTransitionTime.IsZero() {
		c.LastTransitionTime = b.LastTransitionTime
	}
}

// brief is how long a start may take until its progress is written for its own sake.
const brief = 20 * time.Second

// news says whether a status says something new. While an instance starts, one step follows
// the other, and the instance itself reports each: what is no fault is written with what
// comes next. later is when to look again at what was left out and should not stay so.
func news(from, to *kubevirtv1.VirtualMachineStatus, own *kubevirtv1.VirtualMachineInstance, now time.Time) (write bool, later time.Time) {
	if equality.Semantic.DeepEqual(from, to) {
		return false, time.Time{}
	}
	if !starting(own) {
		return true, time.Time{}
	}
	quiet := to.DeepCopy()
	quiet.Conditions = slices.DeleteFunc(quiet.Conditions, progress)
	past := from.DeepCopy()
	past.Conditions = slices.DeleteFunc(past.Conditions, progress)
	if equality.Semantic.DeepEqual(past, quiet) {
		return false, time.Time{}
	}
	if past.PrintableStatus == kubevirtv1.StatusWaitingForVolumeBinding && quiet.PrintableStatus == kubevirtv1.StatusStarting {
		quiet.PrintableStatus = past.PrintableStatus
		soon := own.CreationTimestamp.Add(brief)
		if equality.Semantic.DeepEqual(past, quiet) && now.Before(soon) {
			return false, soon
		}
	}
	return true, time.Time{}
}

// starting: the instance has not got to where it says whether it runs.
func starting(own *kubevirtv1.VirtualMachineInstance) bool {
	if run.StageOf(own) != run.Alive {
		return false
	}
	switch own.Status.Phase {
	case "", kubevirtv1.PhasePending, kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduled:
		return true
	}
	return false
}

// progress: while the instance starts, the condition says how far it is, and no fault.
func progress(c kubevirtv1.Condition) bool {
	switch c.Type {
	case kubevirtv1.ConditionFailure, kubevirtv1.ConditionRestartRequired, kubevirtv1.ConditionManualRecoveryRequired:
		return false
	case kubevirtv1.ConditionSynchronized, string(corev1.PodScheduled):
		return c.Status != metav1.ConditionFalse
	}
	return true
}

// eventsOf are those that a status reports for the first time.
func eventsOf(d decision, to *kubevirtv1.VirtualMachineStatus) (events []action.Event) {
	events = append(events, d.hibernation.Events...)
	before, after := kubevirtv1.FindCondition(d.vm.Status.Conditions, kubevirtv1.ConditionFailure), kubevirtv1.FindCondition(to.Conditions, kubevirtv1.ConditionFailure)
	if after != nil && (before == nil || before.Message != after.Message) {
		events = append(events, action.Warning(d.failing().Event, "%s", after.Message))
	}
	if to.PrintableStatus == kubevirtv1.StatusDataVolumeError && d.vm.Status.PrintableStatus != kubevirtv1.StatusDataVolumeError {
		for _, v := range d.volumes {
			if v.dataVolume != nil && v.dataVolume.fault != "" {
				events = append(events, action.Warning(reasonFailedDataVolumeImport, "%s %s: %s", v.dataVolume.what(), v.name, v.dataVolume.fault))
			}
		}
	}
	return events
}
