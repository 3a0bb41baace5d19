package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// world names each turn "node/namespace/name".
type world struct {
	Turns
	byName map[string]*Turn
}

func (w *world) add(names ...string) {
	for _, name := range names {
		part := strings.Split(name, "/")
		c := &Turn{Node: part[0], Namespace: part[1], Free: part[2] == "free"}
		w.byName[name] = c
		w.Add(c)
	}
}

// begin is the names of all that begin now, in their order.
func (w *world) begin() (names []string) {
	for c := w.Next(); c != nil; c = w.Next() {
		for name, known := range w.byName {
			if known == c {
				names = append(names, name)
			}
		}
	}
	return names
}

func (w *world) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := w.begin(); !slices.Equal(got, want) {
		t.Fatalf("%s: %q begin, want %q", when, got, want)
	}
}

func newWorld(perNode, aside int) *world {
	return &world{Turns: Turns{PerNode: perNode, Aside: aside}, byName: make(map[string]*Turn)}
}

// TestFairShare: a namespace with many calls does not keep another's first one waiting for them all.
func TestFairShare(t *testing.T) {
	w := newWorld(1, 1)
	w.add("n/many/1", "n/many/2", "n/many/3", "n/one/1", "other/many/1")
	w.expect(t, "at first", "n/many/1", "other/many/1")
	for name, want := range map[string]int{"n/one/1": 1, "n/many/2": 2, "n/many/3": 3} {
		if got := w.Ahead(w.byName[name]); got != want {
			t.Errorf("%d before %s, want %d", got, name, want)
		}
	}
	for _, next := range [][2]string{{"n/many/1", "n/one/1"}, {"n/one/1", "n/many/2"}, {"n/many/2", "n/many/3"}} {
		w.Remove(w.byName[next[0]])
		w.expect(t, "after "+next[0], next[1])
	}
	w.Remove(w.byName["n/many/3"])
	if w.Remove(w.byName["other/many/1"]); len(w.last) > 0 {
		t.Errorf("%d shares are kept of nodes without calls", len(w.last))
	}
}

// TestAside: a call that was set aside takes no place, and a namespace that has as many as it may gets
// no further one, which others do not wait for.
func TestAside(t *testing.T) {
	w := newWorld(1, 2)
	for i := range 9 {
		w.add(fmt.Sprint("n/many/", i))
	}
	w.add("n/one/1")
	w.expect(t, "at first", "n/many/0")
	w.SetAside(w.byName["n/many/0"])
	w.expect(t, "when it hangs", "n/one/1")
	w.Remove(w.byName["n/one/1"])
	w.expect(t, "next", "n/many/1")
	w.SetAside(w.byName["n/many/1"])
	w.expect(t, "when two hang")
	if !w.Barred(w.byName["n/many/2"]) {
		t.Error("the third one does not wait for its namespace's own calls")
	}
	w.add("n/late/1", "other/many/1")
	w.expect(t, "of others", "n/late/1", "other/many/1")
	w.Remove(w.byName["n/late/1"])
	w.Remove(w.byName["n/many/0"])
	w.expect(t, "when one of them has ended", "n/many/2")
}

// TestFree: a call that takes no place begins at once, and counts for nobody.
func TestFree(t *testing.T) {
	w := newWorld(1, 1)
	w.add("n/a/1", "n/a/free", "n/b/1")
	w.expect(t, "at first", "n/a/1", "n/a/free")
	if got := w.Ahead(w.byName["n/b/1"]); got != 1 {
		t.Errorf("%d before the next one, want 1", got)
	}
}

// TestOwnQueue: what a namespace has on another node, and what takes no place, is no turn of it on this one;
// and a call that waits no more never begins.
func TestOwnQueue(t *testing.T) {
	w := newWorld(1, 1)
	w.add("n/x/1", "other/a/1", "n/a/free")
	w.expect(t, "at first", "n/x/1", "other/a/1", "n/a/free")
	w.add("n/left/1", "n/a/1", "n/b/1")
	w.Remove(w.byName["n/left/1"])
	w.Remove(w.byName["n/x/1"])
	w.expect(t, "the one that came first", "n/a/1")
}
