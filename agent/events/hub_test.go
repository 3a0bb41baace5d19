package events

import (
	"slices"
	"strconv"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

func publish(h *Hub, vm string, from, to int) {
	for i := from; i < to; i++ {
		h.Publish(&nodev1.Event{Vm: vm, Type: strconv.Itoa(i)})
	}
}

func types(items []Item) (list []string) {
	for _, i := range items {
		list = append(list, i.Event.GetType())
	}
	return list
}

func TestHistory(t *testing.T) {
	h := NewHub(4)
	publish(h, "a", 0, 3)
	publish(h, "b", 3, 6)
	for _, c := range []struct {
		vm   string
		tail int
		want []string
	}{
		{"", 10, []string{"1", "2", "4", "5"}},
		{"", 2, []string{"4", "5"}},
		{"a", 10, []string{"1", "2"}},
		{"b", 1, []string{"5"}},
		{"", 0, nil},
	} {
		s := h.Subscribe(c.vm, c.tail, 1)
		if got := types(s.Take()); !slices.Equal(got, c.want) {
			t.Errorf("%q, %d: %q, want %q", c.vm, c.tail, got, c.want)
		}
		s.Close()
	}
}

// TestHistoryIsShared: one VM's events push out no other's, as long as it has more of them,
// and it alone may have all.
func TestHistoryIsShared(t *testing.T) {
	h := NewHub(10)
	publish(h, "loud", 0, 100)
	if got := h.last("loud", 100); len(got) != 10 || got[0].GetType() != "90" {
		t.Errorf("alone it has %d from %v on, want the last 10", len(got), got[0])
	}
	publish(h, "a", 100, 103)
	publish(h, "b", 103, 104)
	publish(h, "loud", 200, 1000)
	for vm, want := range map[string]int{"a": 3, "b": 1, "loud": 6, "": 10} {
		if got := len(h.last(vm, 100)); got != want {
			t.Errorf("%q has %d events, want %d", vm, got, want)
		}
	}
	if got := h.last("loud", 1); got[0].GetType() != "999" {
		t.Errorf("its last is %v", got[0])
	}
	publish(h, "last", 1000, 1010)
	if len(h.of) > 10 {
		t.Errorf("VMs that are counted: %v", h.of)
	}
}

func TestSlowSubscriber(t *testing.T) {
	h := NewHub(0)
	slow, quick := h.Subscribe("a", 0, 2), h.Subscribe("", 0, 100)
	defer slow.Close()
	defer quick.Close()
	publish(h, "a", 0, 5)
	publish(h, "b", 5, 6)
	<-slow.Ready()
	if got := types(slow.Take()); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("slow: %q", got)
	}
	publish(h, "a", 6, 7)
	items := slow.Take()
	if len(items) != 1 || items[0].Dropped != 3 {
		t.Errorf("slow: %+v, want one event after three that were dropped", items)
	}
	if got := len(quick.Take()); got != 7 {
		t.Errorf("quick: %d events, want 7", got)
	}
}
