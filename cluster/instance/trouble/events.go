package trouble

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/sentences"
)

// OfEvents is why a pod does not start, by its events: those that say that something failed,
// unless something has gone on since. nil: they don't say. The same failures, however often and
// in what order they come, make the same fault, which is written once. Its message begins with
// what is given, unless it names what the namespace lacks.
func OfEvents(events []corev1.Event, namespace, begin string) *condition.Fault {
	var progress time.Time
	for i := range events {
		if e := &events[i]; e.Type == corev1.EventTypeNormal && when(e).After(progress) {
			progress = when(e)
		}
	}
	var missing, words []string
	reasons := make(map[string]string)
	for i := range events {
		e := &events[i]
		if e.Type != corev1.EventTypeWarning || !strings.HasPrefix(e.Reason, "Failed") || when(e).Before(progress) {
			continue
		}
		missing = append(missing, sentences.Missing(e.Message, MaxMissing)...)
		word := sentences.Unnumbered(condition.Sentence(e.Message))
		words = append(words, word)
		reasons[word] = condition.Clip(e.Reason, condition.MaxGuestText)
	}
	if len(words) == 0 {
		return nil
	}
	if len(missing) > 0 {
		return &condition.Fault{Reason: condition.ReasonFailedMount, Message: lacking(missing, namespace)}
	}
	slices.Sort(words)
	return &condition.Fault{Reason: reasons[words[0]], Message: begin + words[0]}
}

// lacking says which objects a namespace lacks, and what to do.
func lacking(missing []string, namespace string) string {
	slices.Sort(missing)
	missing = slices.Compact(missing)
	return "there is no " + strings.Join(missing[:min(len(missing), MaxMissing)], ", no ") + " in namespace " + namespace +
		": create it, and the VM starts by itself, or correct the name in the VM"
}

// Refusal is why the API server refuses the VM's pod.
func Refusal(err error, namespace string) string {
	if missing := sentences.Missing(err.Error(), MaxMissing); len(missing) > 0 {
		return lacking(missing, namespace)
	}
	return "the API server refused the VM's pod: " + err.Error()
}

// when is the last time that an event was seen.
func when(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, at := range []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time} {
		if at.After(last) {
			last = at
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

const (
	// MaxMissing is how many missing objects are named.
	MaxMissing = 8
)
