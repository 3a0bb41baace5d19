package action

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Event is a Kubernetes event about the VM.
type Event struct{ Kind, Reason, Note string }

// Normal is an event about what goes as it is to.
func Normal(reason, format string, args ...any) Event {
	return Event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

// Warning is an event about what somebody may have to mend.
func Warning(reason, format string, args ...any) Event {
	return Event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// Failure is what keeps a VM from what its spec asks for.
type Failure struct {
	Reason, Message string
	// Event is the event's reason: that of the condition, or a narrower one.
	Event string
}

// Longest is the most bytes of a message that a status keeps of what others say.
const Longest = 1024

// Clip bounds a text that others have written.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xC0 == 0x80 { // within a rune
		most--
	}
	return text[:most] + "…"
}
