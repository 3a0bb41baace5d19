package labels

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
)

// Kept is a label that is as it was, since what it follows from could not be
// asked now.
type Kept struct {
	Key string
	// Fact that could not be asked, and why.
	Fact, Reason string
}

// Merge returns what a node carries that carried previous (its other labels may
// be among them), given what is known now. Where a fact could not be asked the
// labels that follow from it are as they were; all others are as now, and those
// that are nobody's of vmlet's are left out. kept is sorted by key.
func Merge(previous map[string]string, now Set) (merged map[string]string, kept []Kept) {
	merged = maps.Clone(now.Labels)
	if merged == nil {
		merged = map[string]string{}
	}
	cleared := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(previous)) {
		f, name, found := familyOf(key)
		if !found || !validKept(key, previous[key]) {
			continue
		}
		gap, unasked := now.choice.unasked(f, name)
		if !unasked || !gap.choice && now.knows(f, key) {
			continue
		}
		// A family is of one time: half of now and half of then would be a
		// machine that there never was.
		if !f.each() && !cleared[f.key] {
			cleared[f.key] = true
			maps.DeleteFunc(merged, func(k, _ string) bool { return f.has(k) })
		}
		merged[key] = previous[key]
		kept = append(kept, Kept{key, string(gap.fact), gap.reason})
	}
	return merged, kept
}

// knows reports whether the set has what follows from a fact, though that, or a
// part of it, is said not to have been asked.
func (s Set) knows(f family, key string) bool {
	if f.each() {
		_, ok := s.Labels[key]
		return ok
	}
	for k := range s.Labels {
		if f.has(k) {
			return !f.set
		}
	}
	return false
}

// validKept: what is read back from a file may have been changed by hand.
func validKept(key, value string) bool {
	_, name, _ := strings.Cut(key, "/")
	return valid(name) && (value == "" || valid(value))
}

// choice is which hypervisor and VMM the labels are of, and what could not be
// asked.
type choice struct {
	hypervisor, vmm string
	unknown         []gap
	// Set if another one might have been chosen, had it been asked.
	hypervisorGap, vmmGap *gap
}

// gap is a fact that could not be asked.
type gap struct {
	fact   fact.Path
	reason string
	// choice: what follows from it is which hypervisor or VMM is meant.
	choice bool
}

func newChoice(doc *capabilitiesv1.Capabilities, wanted string) choice {
	c := choice{hypervisor: wanted, vmm: doc.GetDefaultVmm(), unknown: gaps(doc)}
	if wanted == "" {
		c.hypervisor = doc.GetDefaultHypervisor()
		c.hypervisorGap = c.undecided(fact.Hypervisors, string(fact.HypervisorState), c.hypervisor, tried(doc))
	}
	c.vmmGap = c.undecided(fact.VMMs, string(fact.VMMState), c.vmm, settled(doc))
	return c
}

// gaps are what the document says could not be asked, sorted.
func gaps(doc *capabilitiesv1.Capabilities) []gap {
	var all []gap
	for _, u := range doc.GetUnknown() {
		all = append(all, gap{fact: fact.Path(u.GetFact()), reason: u.GetReason()})
	}
	slices.SortFunc(all, func(a, b gap) int {
		return cmp.Or(cmp.Compare(a.fact, b.fact), strings.Compare(a.reason, b.reason))
	})
	return all
}

// tried are the hypervisors whose state is known: what else of them could not be
// asked would not have changed which one is chosen.
func tried(doc *capabilitiesv1.Capabilities) map[string]bool {
	names := map[string]bool{}
	for _, h := range doc.GetHypervisors() {
		names[h.GetName()] = h.GetState() != unasked
	}
	return names
}

// settled are the VMMs that work and those after the default one: they would
// not have been chosen, or could have been.
func settled(doc *capabilitiesv1.Capabilities) map[string]bool {
	names, after := map[string]bool{}, false
	for _, m := range doc.GetVmms() {
		names[m.GetName()] = after || m.GetState() == works
		after = after || m.GetName() == doc.GetDefaultVmm()
	}
	return names
}

// undecided returns what of all could not be asked and might have been chosen in place
// of chosen, which those that are settled can't. Only all of one, or its state, decides.
func (c choice) undecided(all fact.Path, state, chosen string, settled map[string]bool) *gap {
	for _, g := range c.unknown {
		list, name, detail := g.fact.Member()
		if list != all || detail != "" && detail != state || name != "" && (name == chosen || settled[name]) {
			continue
		}
		g.choice = true
		return &g
	}
	return nil
}

// unasked reports whether a fact that the labels follow from is unknown.
func (c choice) unasked(f family, name string) (gap, bool) {
	for _, s := range f.sources {
		switch {
		case s.hypervisor && c.hypervisorGap != nil:
			return *c.hypervisorGap, true
		case s.vmm && c.vmmGap != nil:
			return *c.vmmGap, true
		}
		for _, g := range c.unknown {
			if g.fact.Touches(s.path(c, name)) {
				return g, true
			}
		}
	}
	return gap{}, false
}

// Unknown are the facts that could not be asked and that a label follows from,
// each as "fact: reason". Sorted.
func (s Set) Unknown() []string {
	var out []string
	for _, g := range s.choice.unknown {
		if s.choice.matters(g) {
			out = append(out, string(g.fact)+": "+g.reason)
		}
	}
	return slices.Compact(out)
}

// matters reports whether a label follows from what could not be asked.
func (c choice) matters(g gap) bool {
	// Where each label has a fact of its own, the gap is of the one by its name.
	_, name, _ := g.fact.Member()
	return slices.ContainsFunc(families(), func(f family) bool {
		return slices.ContainsFunc(f.sources, func(s source) bool { return g.fact.Touches(s.path(c, name)) })
	})
}
