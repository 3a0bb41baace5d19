package virtualmachines_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// chaosEvent is one of four things of a guest: what it has written to its disk, another VMM, something that
// ends it, or the word that its memory is whole.
type chaosEvent struct {
	wrote guest.Witness
	// vmm is the process that has its disk from now on.
	vmm int
	// ends says what is about to end the guest: from now on it may boot.
	ends string
	// whole says who has promised that the guest goes on where it was: from now on it may not, if it is one
	// that has written something under the VMM that had it last. Of any other nobody knows which boot it is.
	whole string
}

// chaosHistory are a guest's events in their order.
type chaosHistory []chaosEvent

// add appends an event. Of what a boot has written, in order, the last is enough.
func (h chaosHistory) add(e chaosEvent) chaosHistory {
	if last := len(h) - 1; last >= 0 && e.wrote.Boot != "" && h[last].wrote.Boot == e.wrote.Boot &&
		h[last].wrote.Intrusion == e.wrote.Intrusion && h[last].wrote.Count <= e.wrote.Count {
		h[last] = e
		return h
	}
	return append(h, e)
}

// judge says what must not have happened to a guest.
func (h chaosHistory) judge() (faults []string) {
	var last guest.Witness
	var boots []string
	mayBoot, known := false, false
	for _, e := range h {
		switch {
		case e.ends != "":
			mayBoot = true
			continue
		case e.whole != "":
			mayBoot = mayBoot && !known
			continue
		case e.vmm != 0:
			known = false
			continue
		}
		now := e.wrote
		known = known || now.Count > last.Count
		if now.Intrusion != last.Intrusion {
			faults = append(faults, "its disk had another writer: "+now.Intrusion)
		}
		if now.Count < last.Count {
			faults = append(faults, fmt.Sprintf("boot %s had written %d, and boot %s has written %d after it", last.Boot, last.Count, now.Boot, now.Count))
		}
		if now.Boot != last.Boot {
			switch {
			case slices.Contains(boots, now.Boot):
				faults = append(faults, fmt.Sprintf("boot %s goes on after boot %s was there", now.Boot, last.Boot))
			case last.Boot != "" && !mayBoot:
				faults = append(faults, fmt.Sprintf("boot %s has taken the place of boot %s, which nothing had ended", now.Boot, last.Boot))
			}
			boots = append(boots, now.Boot)
		}
		last = now
	}
	return faults
}

func TestJudge(t *testing.T) {
	wrote := func(boot string, count int) chaosEvent {
		return chaosEvent{wrote: guest.Witness{Boot: boot, Count: count}}
	}
	intruded := chaosEvent{wrote: guest.Witness{Boot: "a", Count: 3, Intrusion: "found another"}}
	ends, whole, vmm := chaosEvent{ends: "it is stopped"}, chaosEvent{whole: "it is Hibernated"}, chaosEvent{vmm: 1}
	for _, c := range []struct {
		name    string
		history chaosHistory
		want    []string
	}{
		{name: "nothing was seen"},
		{name: "counts on", history: chaosHistory{wrote("a", 1), wrote("a", 2), wrote("a", 2)}},
		{name: "killed and booted", history: chaosHistory{wrote("a", 1), ends, wrote("a", 2), wrote("b", 3)}},
		{name: "killed twice", history: chaosHistory{wrote("a", 1), ends, wrote("b", 2), wrote("c", 3)}},
		{name: "killed and goes on", history: chaosHistory{wrote("a", 1), ends, wrote("a", 2)}},
		{name: "saved and resumed", history: chaosHistory{wrote("a", 1), ends, whole, wrote("a", 2)}},
		{name: "saved, resumed and killed", history: chaosHistory{wrote("a", 1), whole, ends, wrote("b", 2)}},
		{name: "stopped, and saved before it has written anything", history: chaosHistory{wrote("a", 1), ends, vmm, wrote("a", 1), whole, vmm, wrote("b", 2)}},
		{name: "resumed, and saved before it has written anything", history: chaosHistory{wrote("a", 1), whole, vmm, whole, vmm, wrote("a", 2)}},
		{
			name: "resumed, saved before it has written anything, and booted", history: chaosHistory{wrote("a", 1), whole, vmm, whole, vmm, wrote("b", 2)},
			want: []string{"boot b has taken the place of boot a, which nothing had ended"},
		},
		{
			name: "booted, saved and booted", history: chaosHistory{wrote("a", 1), ends, vmm, wrote("b", 2), whole, vmm, wrote("c", 3)},
			want: []string{"boot c has taken the place of boot b, which nothing had ended"},
		},
		{
			name: "booted by nobody", history: chaosHistory{wrote("a", 1), wrote("b", 2)},
			want: []string{"boot b has taken the place of boot a, which nothing had ended"},
		},
		{
			name: "saved and booted", history: chaosHistory{wrote("a", 1), ends, whole, wrote("b", 2)},
			want: []string{"boot b has taken the place of boot a, which nothing had ended"},
		},
		{
			name: "a write is lost", history: chaosHistory{wrote("a", 5), ends, wrote("b", 4)},
			want: []string{"boot a had written 5, and boot b has written 4 after it"},
		},
		{
			name: "an image is older than the disk", history: chaosHistory{wrote("a", 5), whole, wrote("a", 4)},
			want: []string{"boot a had written 5, and boot a has written 4 after it"},
		},
		{
			name: "an image is restored after a boot", history: chaosHistory{wrote("a", 1), ends, wrote("b", 2), ends, wrote("a", 3)},
			want: []string{"boot a goes on after boot b was there"},
		},
		{
			name: "two boots write by turns", history: chaosHistory{wrote("a", 1), ends, wrote("b", 2), wrote("a", 3), wrote("b", 4)},
			want: []string{"boot a goes on after boot b was there", "boot b goes on after boot a was there"},
		},
		{
			name: "the guest finds another writer", history: chaosHistory{wrote("a", 2), intruded, intruded},
			want: []string{"its disk had another writer: found another"},
		},
	} {
		if got := c.history.judge(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		var short chaosHistory
		for _, e := range c.history {
			short = short.add(e)
		}
		if got := short.judge(); !slices.Equal(got, c.want) {
			t.Errorf("%s, with what is enough of it: got %q, want %q", c.name, got, c.want)
		}
	}
	counted := chaosHistory(nil).add(wrote("a", 1)).add(wrote("a", 2)).add(ends).add(wrote("a", 3)).add(wrote("a", 4))
	if len(counted) != 3 {
		t.Errorf("of four counts with an end between them are kept %v, want the last before and after it", counted)
	}
}
