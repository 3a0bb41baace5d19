package imports

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

// State is how far an import is, as its claim says.
type State struct {
	// From is what the claim is imported from, for people.
	From string
	// Phase is one of contract's.
	Phase string
	// Progress is a percentage, such as "55%", or empty.
	Progress string
	// Restarts is how often it has begun again.
	Restarts int
	// Message is what it waits for, or why it failed last.
	Message string
	// Next is when the next pod is made after one that failed, by RFC 3339; empty: now.
	Next string
}

// maxText bounds what is read of an annotation: a message, and when the next attempt begins.
const maxText = 1536

// Read returns the state of a claim's import; nil: vmlet does not import it.
func Read(claim *corev1.PersistentVolumeClaim) *State {
	from, is := claim.Annotations[contract.AnnotationImport]
	if !is {
		return nil
	}
	s := &State{
		From: clip(from, maxText), Phase: clip(claim.Annotations[contract.AnnotationImportPhase], 64),
		Progress: clip(claim.Annotations[contract.AnnotationImportProgress], 16), Message: clip(claim.Annotations[contract.AnnotationImportMessage], maxText),
		Next: clip(claim.Annotations[contract.AnnotationImportNext], 64),
	}
	s.Restarts, _ = strconv.Atoi(claim.Annotations[contract.AnnotationImportRestarts])
	return s
}

// Done: a guest may have the claim. One that the storage makes as a copy has what it should as soon as
// it has a volume, and the VM's pod may be the one that it waits for.
func (s *State) Done() bool {
	return s.Phase == contract.ImportSucceeded || s.Phase == contract.ImportClone
}

// Waiting says what an import that is under way waits for.
func (s *State) Waiting() string {
	text := "is imported from " + s.From
	if s.Progress != "" {
		text += ", " + s.Progress
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}

// annotations are the claim's with the state in them.
func (s *State) annotations() map[string]string {
	restarts := ""
	if s.Restarts > 0 {
		restarts = strconv.Itoa(s.Restarts)
	}
	return map[string]string{
		contract.AnnotationImport: s.From, contract.AnnotationImportPhase: s.Phase, contract.AnnotationImportProgress: s.Progress,
		contract.AnnotationImportRestarts: restarts, contract.AnnotationImportMessage: s.Message,
		contract.AnnotationImportNext: s.Next,
	}
}

// pause is how long nobody makes a pod, as the last one failed a short while ago. A time that is further away than any pause
// is of a clock that was put back since, and does not count.
func (s *State) pause(now time.Time) time.Duration {
	next, err := time.Parse(time.RFC3339, s.Next)
	if left := next.Sub(now); err == nil && left <= longestPause {
		return left
	}
	return 0
}
