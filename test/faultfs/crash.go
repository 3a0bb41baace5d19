package faultfs

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
)

// State is what a disk may have when the power goes at some moment.
type State struct {
	rec  *Recording
	at   int         // entries of the log before the cut
	lost []int       // of these, what the disk does not have
	torn map[int]int // writes, of which the disk has so many bytes only
}

// sector is what a disk writes as a whole, in bytes.
const sector = 512

// States yields what the disk may have at each moment of the recording: everything,
// what was synced, and of what lies in between all combinations if there are at most
// limit, else the most telling ones and some at random, by a seed. (No write at all
// is lost that a sync has covered; of others any, in any order, and parts of them.)
func (r *Recording) States(limit int, seed uint64) iter.Seq[State] {
	return func(yield func(State) bool) {
		seen := make(map[string]bool)
		for at := range len(r.log) + 1 {
			rnd := rand.New(rand.NewPCG(seed, uint64(at)))
			for _, s := range r.statesAt(at, limit, rnd) {
				if key := s.key(); !seen[key] {
					seen[key] = true
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

func (r *Recording) statesAt(at, limit int, rnd *rand.Rand) []State {
	open := r.unsynced(at)
	var all []State
	lose := func(is func(n, i int) bool) {
		s := State{rec: r, at: at}
		for n, i := range open {
			if is(n, i) {
				s.lost = append(s.lost, i)
			}
		}
		all = append(all, s)
	}
	if len(open) < 16 && 1<<len(open) <= limit {
		for set := range 1 << len(open) {
			lose(func(n, _ int) bool { return set>>n&1 == 1 })
		}
		return append(all, tear(all, rnd)...)
	}
	name := func(i int) bool { return r.log[i].ofNames() }
	lose(func(int, int) bool { return true })
	lose(func(int, int) bool { return false })
	lose(func(_, i int) bool { return name(i) })
	lose(func(_, i int) bool { return !name(i) })
	lose(func(_, i int) bool { return r.log[i].kind == kindWrite })
	for range max(limit-len(all), 0) {
		few := rnd.IntN(2) == 0 // one lost among many tells as much as half of them
		lose(func(int, int) bool { return few && rnd.IntN(len(open)) == 0 || !few && rnd.IntN(2) == 0 })
	}
	return append(all, tear(all, rnd)...)
}

// tear adds, to some states, one in which the last write is not whole.
func tear(all []State, rnd *rand.Rand) []State {
	var more []State
	for _, s := range all {
		i := s.at - 1
		if i < 0 || s.rec.log[i].kind != kindWrite || slices.Contains(s.lost, i) || rnd.IntN(3) > 0 {
			continue
		}
		sectors := len(s.rec.log[i].data) / sector
		s.torn = map[int]int{i: rnd.IntN(sectors+1) * sector}
		more = append(more, s)
	}
	return more
}

// unsynced lists the changes before a moment that nothing has made durable by then.
func (r *Recording) unsynced(at int) []int {
	var open []int
	for i, e := range r.log[:at] {
		durable := func(want kind, id uint64) bool {
			return slices.ContainsFunc(r.log[i+1:at], func(s entry) bool { return s.kind == want && s.id == id })
		}
		switch {
		case e.ofNames():
			if durable(kindSyncDir, e.dir) && (e.toDir == 0 || durable(kindSyncDir, e.toDir)) {
				continue
			}
		case e.ofContent():
			if durable(kindSync, e.id) {
				continue
			}
		default:
			continue
		}
		open = append(open, i)
	}
	return open
}

func (e entry) ofNames() bool {
	return e.kind == kindPut || e.kind == kindDrop || e.kind == kindMove
}

func (e entry) ofContent() bool {
	return e.kind == kindWrite || e.kind == kindTruncate || e.kind == kindExtend || e.kind == kindMode
}

// key is the same for states that are the same.
func (s State) key() string {
	var b strings.Builder
	for i, e := range s.rec.log[:s.at] {
		if !slices.Contains(s.lost, i) && (e.ofNames() || e.ofContent() || e.kind == kindMark) {
			fmt.Fprintf(&b, "%d:%d ", i, s.torn[i])
		}
	}
	return b.String()
}

// Marked says whether the word was marked before the power went.
func (s State) Marked(word string) bool {
	return slices.ContainsFunc(s.rec.log[:s.at], func(e entry) bool { return e.kind == kindMark && e.name == word })
}

// String says when the power went and what was lost.
func (s State) String() string {
	last := "the beginning"
	if s.at > 0 {
		last = s.rec.log[s.at-1].String()
	}
	text := fmt.Sprintf("power cut after %d of %d, %s", s.at, len(s.rec.log), last)
	for _, i := range s.lost {
		text += fmt.Sprintf("; lost: %v", s.rec.log[i])
	}
	for i, n := range s.torn {
		text += fmt.Sprintf("; only %d bytes of: %v", n, s.rec.log[i])
	}
	return text
}
