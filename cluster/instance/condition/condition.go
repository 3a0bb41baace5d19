package condition

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// owned are the conditions that the controller of instances writes; all others stay as they are.
var owned = []string{
	kubevirtv1.ConditionReady, kubevirtv1.ConditionSynchronized, kubevirtv1.ConditionPaused,
	kubevirtv1.ConditionHotVCPUChange, kubevirtv1.ConditionHotMemoryChange,
	kubevirtv1.ConditionAgentConnected, kubevirtv1.ConditionAgentVersionNotSupported, kubevirtv1.ConditionLiveMigratable,
	kubevirtv1.ConditionAccessCredentialsSynchronized,
	kubevirtv1.ConditionSoftwareEmulation, PodScheduled, NetworkLimited,
	kubevirtv1.ConditionHibernationInProgress, kubevirtv1.ConditionHibernationRestoreInProgress,
}

// Find is a condition by its type; nil: there is none.
func Find(conditions []kubevirtv1.Condition, of string) *kubevirtv1.Condition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// ReasonOf is the reason of the condition of a type; empty: there is none.
func ReasonOf(s *kubevirtv1.VirtualMachineInstanceStatus, of string) string {
	if c := Find(s.Conditions, of); c != nil {
		return c.Reason
	}
	return ""
}

// Merge puts wanted in the place of those of known that are owned. One that says the same as
// before keeps its times, and one of the same status the time of its transition.
func Merge(known, wanted []kubevirtv1.Condition, now metav1.Time) []kubevirtv1.Condition {
	var all []kubevirtv1.Condition
	for _, c := range known {
		if !slices.Contains(owned, c.Type) || Find(wanted, c.Type) != nil {
			all = append(all, c)
		}
	}
	for _, w := range wanted {
		w.LastTransitionTime = now
		old := Find(all, w.Type)
		if old == nil {
			all = append(all, w)
			continue
		}
		if old.Status == w.Status {
			w.LastTransitionTime = old.LastTransitionTime
		}
		if w.LastProbeTime.IsZero() {
			w.LastProbeTime = old.LastProbeTime
		}
		*old = w
	}
	return all
}

// New returns a condition. Its message is one line of bounded length.
func New(of string, status metav1.ConditionStatus, reason, message string) kubevirtv1.Condition {
	return kubevirtv1.Condition{Type: of, Status: status, Reason: reason, Message: Sentence(message)}
}

// Fault is why something is not as it was asked for: a reason in a word, and a sentence.
type Fault struct{ Reason, Message string }
