package instance

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Reasons of events, as KubeVirt spells them.
const (
	eventCreated      = "SuccessfulCreate"
	eventDeleted      = "SuccessfulDelete"
	eventStarted      = "Started"
	eventStopped      = "Stopped"
	eventGone         = "Deleted"
	eventShuttingDown = "ShuttingDown"
	eventPaused       = "Paused"
	eventUnpaused     = "Unpaused"
	eventUnscheduled  = "FailedScheduling"
)

// event is one that is recorded of the instance.
type event struct{ kind, reason, message string }

// news is what is worth an event when one status follows another.
func news(old, s *kubevirtv1.VirtualMachineInstanceStatus) []event {
	var all []event
	normal := func(reason, message string) { all = append(all, event{corev1.EventTypeNormal, reason, message}) }
	warning := func(reason, message string) { all = append(all, event{corev1.EventTypeWarning, reason, message}) }
	message := func(of string) string {
		if c := find(s.Conditions, of); c != nil {
			return c.Message
		}
		return ""
	}
	if f := find(s.Conditions, kubevirtv1.ConditionSynchronized); f != nil {
		if was := find(old.Conditions, kubevirtv1.ConditionSynchronized); was == nil || was.Reason != f.Reason || was.Message != f.Message {
			warning(f.Reason, f.Message)
		}
	}
	if c := find(s.Conditions, conditionPodScheduled); c != nil && find(old.Conditions, conditionPodScheduled) == nil {
		warning(eventUnscheduled, message(kubevirtv1.ConditionReady))
	}
	if entered(s, kubevirtv1.PhaseRunning) && !entered(old, kubevirtv1.PhaseRunning) {
		normal(eventStarted, "the guest runs on node "+s.NodeName)
	}
	if reasonOf(s, kubevirtv1.ConditionReady) == reasonPodTerminating && reasonOf(old, kubevirtv1.ConditionReady) != reasonPodTerminating {
		normal(eventShuttingDown, message(kubevirtv1.ConditionReady))
	}
	if s.Phase == kubevirtv1.PhaseRunning {
		was, is := find(old.Conditions, kubevirtv1.ConditionPaused), find(s.Conditions, kubevirtv1.ConditionPaused)
		switch {
		case was == nil && is != nil && is.Reason == reasonPausedByUser:
			normal(eventPaused, is.Message)
		case was == nil && is != nil:
			warning(eventPaused, is.Message)
		case was != nil && is == nil:
			normal(eventUnpaused, "the guest goes on")
		}
	}
	if c := find(s.Conditions, kubevirtv1.ConditionHibernationInProgress); c != nil && !isFinal(s.Phase) {
		was := find(old.Conditions, kubevirtv1.ConditionHibernationInProgress)
		switch changed := was == nil || was.Reason != c.Reason; {
		case changed && (c.Reason == reasonSaving || c.Reason == reasonSuspending):
			normal(c.Reason, c.Message)
		case c.Status == metav1.ConditionFalse && (changed || was.Message != c.Message):
			warning(c.Reason, c.Message)
		}
	}
	switch ran := entered(s, kubevirtv1.PhaseRunning); {
	case s.Phase == old.Phase:
	case s.Phase == kubevirtv1.PhaseUnknown:
		warning(reasonOf(s, kubevirtv1.ConditionReady), message(kubevirtv1.ConditionReady))
	case s.Phase == kubevirtv1.PhaseSucceeded:
		normal(eventStopped, message(kubevirtv1.ConditionReady))
	case s.Phase == kubevirtv1.PhaseFailed && ran:
		warning(eventStopped, message(kubevirtv1.ConditionReady))
	}
	return all
}

func reasonOf(s *kubevirtv1.VirtualMachineInstanceStatus, of string) string {
	if c := find(s.Conditions, of); c != nil {
		return c.Reason
	}
	return ""
}
