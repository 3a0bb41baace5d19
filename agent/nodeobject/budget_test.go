package nodeobject

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	type ask struct {
		after time.Duration // since the last one
		want  verdict
	}
	burst := func(more ...ask) []ask {
		var all []ask
		for range writesAtOnce {
			all = append(all, ask{0, writeNow})
		}
		return append(all, more...)
	}
	for name, asks := range map[string][]ask{
		"a burst waits once, however often it asks": burst(ask{0, throttled}, ask{0, writeLater}, ask{5 * time.Second, writeLater}, ask{time.Second, writeNow}),
		"one each refill is never held up":          burst(ask{writesEach, writeNow}, ask{writesEach, writeNow}, ask{writesEach, writeNow}),
		"three that had to wait in a row are too many": burst(
			ask{0, throttled}, ask{writesEach, writeNow}, ask{0, throttled}, ask{writesEach, writeNow}, ask{0, exhausted}),
		"a write that needn't wait ends the row": burst(
			ask{0, throttled}, ask{writesEach, writeNow}, ask{0, throttled}, ask{writesEach, writeNow},
			ask{writesEach, writeNow}, ask{0, throttled}),
		"it is full again after a minute": burst(append([]ask{{time.Hour, writeNow}}, burst()[1:]...)...),
	} {
		t.Run(name, func(t *testing.T) {
			b, now := newBudget(), start
			for i, a := range asks {
				now = now.Add(a.after)
				if got := b.take(now); got != a.want {
					t.Fatalf("%d: %v, want %v", i, got, a.want)
				}
			}
		})
	}
}
