// Package turns shares a node's places out among calls that take long: each namespace has its turn,
// and a call that hangs keeps no other waiting. It must not know what is called, nor any clock. Start
// reading at Turns.
package turns

import (
	"cmp"
	"maps"
	"slices"
)

// Turns are the calls that wait, and those under way. They are not safe for concurrent use.
type Turns struct {
	// PerNode is how many calls of a node are under way at once, without those that were set aside.
	PerNode int
	// Aside is how many of a namespace's calls on a node may be set aside: while it has as many,
	// none of its calls begins there.
	Aside int

	waiting, active []*Turn
	// begun counts calls that have begun, and last has its count when one of a namespace began on a
	// node that has calls.
	begun int
	last  map[share]int
}

// share is a namespace's on a node.
type share struct{ node, namespace string }

// Turn is one call's.
type Turn struct {
	Node, Namespace string
	// Free: the call takes no place, and waits for none.
	Free bool
	// aside: others no longer wait for it.
	aside bool
}

// Add has a call wait for its turn.
func (t *Turns) Add(c *Turn) { t.waiting = append(t.waiting, c) }

// Remove takes out a call that has ended, or waits no more.
func (t *Turns) Remove(c *Turn) {
	same := func(other *Turn) bool { return other == c }
	t.waiting, t.active = slices.DeleteFunc(t.waiting, same), slices.DeleteFunc(t.active, same)
	there := func(other *Turn) bool { return other.Node == c.Node }
	if !slices.ContainsFunc(t.waiting, there) && !slices.ContainsFunc(t.active, there) {
		maps.DeleteFunc(t.last, func(s share, _ int) bool { return s.node == c.Node })
	}
}

// SetAside gives the place of a call that is under way to others.
func (t *Turns) SetAside(c *Turn) { c.aside = true }

// Next is a call that begins now; nil: all wait.
func (t *Turns) Next() *Turn {
	for _, c := range t.waiting {
		if !c.Free {
			if t.underWay(c.Node) >= t.PerNode {
				continue
			}
			c = t.first(c.Node)
		}
		if c != nil {
			t.begin(c)
			return c
		}
	}
	return nil
}

func (t *Turns) begin(c *Turn) {
	t.waiting = slices.DeleteFunc(t.waiting, func(other *Turn) bool { return other == c })
	t.active = append(t.active, c)
	if c.Free {
		return
	}
	if t.last == nil {
		t.last = make(map[share]int)
	}
	t.begun++
	t.last[share{c.Node, c.Namespace}] = t.begun
}

// Ahead is how many calls are under way or waiting on its node before one that waits.
func (t *Turns) Ahead(c *Turn) int {
	return t.underWay(c.Node) + max(slices.Index(t.queue(c.Node), c), 0)
}

// SetAsideOf is how many calls of a namespace on a node were set aside and have not ended.
func (t *Turns) SetAsideOf(node, namespace string) int {
	return t.count(func(a *Turn) bool { return a.aside && a.Node == node && a.Namespace == namespace })
}

// Barred: the call waits until one that was set aside ends, of its own namespace.
func (t *Turns) Barred(c *Turn) bool {
	return !c.Free && t.SetAsideOf(c.Node, c.Namespace) >= t.Aside
}

// first is the call whose turn it is on a node; nil: none may begin.
func (t *Turns) first(node string) *Turn {
	for _, c := range t.queue(node) {
		if !t.Barred(c) {
			return c
		}
	}
	return nil
}

// queue has those that wait on a node in their order: a call comes after all of namespaces that have
// fewer calls before it, under way or waiting, and after the first one of a namespace that has waited
// longer for its turn.
func (t *Turns) queue(node string) (queue []*Turn) {
	before, rank := make(map[string]int), make(map[*Turn]int)
	for _, c := range t.active {
		if c.Node == node && !c.Free {
			before[c.Namespace]++
		}
	}
	for _, c := range t.waiting {
		if c.Node == node && !c.Free {
			rank[c] = before[c.Namespace]
			before[c.Namespace]++
			queue = append(queue, c)
		}
	}
	slices.SortStableFunc(queue, func(a, b *Turn) int {
		return cmp.Or(rank[a]-rank[b], t.last[share{node, a.Namespace}]-t.last[share{node, b.Namespace}])
	})
	return queue
}

// underWay is how many places of a node are taken.
func (t *Turns) underWay(node string) int {
	return t.count(func(c *Turn) bool { return c.Node == node && !c.Free && !c.aside })
}

func (t *Turns) count(which func(*Turn) bool) (n int) {
	for _, c := range t.active {
		if which(c) {
			n++
		}
	}
	return n
}
