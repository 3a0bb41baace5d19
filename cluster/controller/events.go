package controller

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// distinct records events whose notes differ as several. client-go counts those of one object with
// the same reason and action as one, whatever their notes, and shows the first note for minutes:
// of two DataVolumes that were made, or of a failure and the next one.
type distinct struct{ events.EventRecorder }

// Eventf has the action end in a hash of the note.
func (d distinct) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	hash := fnv.New32a()
	hash.Write([]byte(text))
	d.EventRecorder.Eventf(regarding, related, kind, reason, fmt.Sprintf("%s-%08x", action, hash.Sum32()), "%s", text)
}
