package status

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

const (
	eventStarted      = "Started"
	eventStopped      = "Stopped"
	eventShuttingDown = "ShuttingDown"
	eventPaused       = "Paused"
	eventUnpaused     = "Unpaused"
	eventUnscheduled  = "FailedScheduling"
)

// Events is what is worth an event when one status follows another.
func Events(old, s *kubevirtv1.VirtualMachineInstanceStatus) []action.Event {
	var all []action.Event
	normal := func(reason, message string) {
		all = append(all, action.Event{Kind: corev1.EventTypeNormal, Reason: reason, Message: message})
	}
	warning := func(reason, message string) {
		all = append(all, action.Event{Kind: corev1.EventTypeWarning, Reason: reason, Message: message})
	}
	message := func(of string) string {
		if c := condition.Find(s.Conditions, of); c != nil {
			return c.Message
		}
		return ""
	}
	if f := condition.Find(s.Conditions, kubevirtv1.ConditionSynchronized); f != nil {
		if was := condition.Find(old.Conditions, kubevirtv1.ConditionSynchronized); was == nil || was.Reason != f.Reason || was.Message != f.Message {
			warning(f.Reason, f.Message)
		}
	}
	if c := condition.Find(s.Conditions, condition.PodScheduled); c != nil && condition.Find(old.Conditions, condition.PodScheduled) == nil {
		warning(eventUnscheduled, message(kubevirtv1.ConditionReady))
	}
	if view.Entered(s, kubevirtv1.PhaseRunning) && !view.Entered(old, kubevirtv1.PhaseRunning) {
		normal(eventStarted, "the guest runs on node "+s.NodeName)
	}
	if condition.ReasonOf(s, kubevirtv1.ConditionReady) == condition.ReasonPodTerminating && condition.ReasonOf(old, kubevirtv1.ConditionReady) != condition.ReasonPodTerminating {
		normal(eventShuttingDown, message(kubevirtv1.ConditionReady))
	}
	if s.Phase == kubevirtv1.PhaseRunning {
		was, is := condition.Find(old.Conditions, kubevirtv1.ConditionPaused), condition.Find(s.Conditions, kubevirtv1.ConditionPaused)
		switch {
		case was == nil && is != nil && is.Reason == condition.ReasonPausedByUser:
			normal(eventPaused, is.Message)
		case was == nil && is != nil:
			warning(eventPaused, is.Message)
		case was != nil && is == nil:
			normal(eventUnpaused, "the guest goes on")
		}
	}
	if c := condition.Find(s.Conditions, kubevirtv1.ConditionHibernationInProgress); c != nil && !view.IsFinal(s.Phase) {
		was := condition.Find(old.Conditions, kubevirtv1.ConditionHibernationInProgress)
		switch changed := was == nil || was.Reason != c.Reason; {
		case changed && (c.Reason == condition.ReasonSaving || c.Reason == condition.ReasonSuspending):
			normal(c.Reason, c.Message)
		case c.Status == metav1.ConditionFalse && (changed || was.Message != c.Message):
			warning(c.Reason, c.Message)
		}
	}
	switch ran := view.Entered(s, kubevirtv1.PhaseRunning); {
	case s.Phase == old.Phase:
	case s.Phase == kubevirtv1.PhaseUnknown:
		warning(condition.ReasonOf(s, kubevirtv1.ConditionReady), message(kubevirtv1.ConditionReady))
	case s.Phase == kubevirtv1.PhaseSucceeded:
		normal(eventStopped, message(kubevirtv1.ConditionReady))
	case s.Phase == kubevirtv1.PhaseFailed && ran:
		warning(eventStopped, message(kubevirtv1.ConditionReady))
	}
	return all
}
