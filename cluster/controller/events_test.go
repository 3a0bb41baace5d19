package controller

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// recorder keeps what is recorded.
type recorder struct{ actions, notes []string }

func (r *recorder) Eventf(_, _ runtime.Object, _, _, action, note string, args ...any) {
	r.actions, r.notes = append(r.actions, action), append(r.notes, fmt.Sprintf(note, args...))
}

// TestEventsAreDistinct: those of one reason are told apart by their notes, and a note that comes
// again is the same event.
func TestEventsAreDistinct(t *testing.T) {
	r := &recorder{}
	d := distinct{r}
	for _, name := range []string{"a", "b", "a", "100%s"} {
		d.Eventf(nil, nil, "Normal", "Made", "Made", "made %s", name)
	}
	if r.actions[0] == r.actions[1] || r.actions[0] != r.actions[2] || !strings.HasPrefix(r.actions[0], "Made-") {
		t.Errorf("actions %q", r.actions)
	}
	if r.notes[3] != "made 100%s" {
		t.Errorf("note %q", r.notes[3])
	}
}

// TestUntypedReadsAreCached: VMs' DataVolumes cost no request each time a VM is looked at.
func TestUntypedReadsAreCached(t *testing.T) {
	if o := clientOptions(); o.Cache == nil || !o.Cache.Unstructured {
		t.Errorf("%+v", o)
	}
}
