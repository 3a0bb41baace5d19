package agent

import (
	"bytes"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

// TestHostileEvents keeps little of what a VMM that was taken over says, and
// nothing that can't be sent on.
func TestHostileEvents(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	m, _ := a.machine("web")
	watcher := &watcher{agent: a.agent, m: m}
	large := bytes.Repeat([]byte("x"), 1<<20)
	for _, e := range []vmm.Event{
		{Name: "LARGE", Data: large},
		{Name: string(large)},
		{Name: "BAD", Data: []byte("{\"a\": \"\xff\"}")},
		{Name: "\xff"},
	} {
		sub := a.hub.Subscribe("web", 0, 1)
		watcher.monitorEvent(e)
		for _, item := range sub.Take() {
			b, err := proto.Marshal(item.Event)
			if err != nil {
				t.Errorf("%.10q: %v", e.Name, err)
			}
			if len(b) > 2*maxEventData {
				t.Errorf("%.10q: %d bytes are kept", e.Name, len(b))
			}
		}
		sub.Close()
	}
}
