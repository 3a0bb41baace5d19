package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/shim"
)

// TestProgressIsSparing: of a step that takes 1.05 s, with a chunk each millisecond, an agent gets
// the beginning, the end and ten messages between.
func TestProgressIsSparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{out: make(chan outgoing, 1000)}
		progress := c.progress(7)
		progress(shim.Progress{Step: "saving device state"})
		const total = 1050
		for done := range uint64(total + 1) {
			progress(shim.Progress{Step: "saving memory", Done: done, Total: total})
			time.Sleep(time.Millisecond)
		}
		progress(shim.Progress{Step: "saving disks"})
		close(c.out)
		steps := map[string]int{}
		var first, last *shim.Progress
		for m := range c.out {
			p := m.Progress
			steps[p.Step]++
			if p.Step != "saving memory" {
				continue
			}
			if first == nil {
				first = p
			}
			last = p
		}
		for step, want := range map[string]int{"saving device state": 1, "saving memory": 12, "saving disks": 1} {
			if steps[step] != want {
				t.Errorf("%d messages of the step %q, want %d", steps[step], step, want)
			}
		}
		if first.Done != 0 || last.Done != total {
			t.Errorf("told from %d to %d of %d", first.Done, last.Done, total)
		}
	})
}
