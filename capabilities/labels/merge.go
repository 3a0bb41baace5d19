package labels

import (
	"cmp"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"maps"
	"slices"
	"strings"
)

// Kept is a label that is as it was, since what it follows from could not be
// asked now.
type Kept struct {
	Key string
	// Fact that could not be asked, and why.
	Fact, Reason string
}

// Merge returns what a node carries that carried previous (its other labels may
// be among them) and of which now is known. Where a fact could not be asked the
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
		kept = append(kept, Kept{key, gap.fact, gap.reason})
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
	path         string // the fact, as normal has it
	fact, reason string
	// choice: what follows from it is which hypervisor or VMM is meant.
	choice bool
}

func newChoice(doc *capabilitiesv1.Capabilities, wanted string) choice {
	c := choice{hypervisor: wanted, vmm: doc.GetDefaultVmm(), unknown: gaps(doc)}
	if wanted == "" {
		c.hypervisor = doc.GetDefaultHypervisor()
		c.hypervisorGap = c.undecided("hypervisors", c.hypervisor, tried(doc))
	}
	c.vmmGap = c.undecided("vmms", c.vmm, settled(doc))
	return c
}

// gaps are what the document says could not be asked, sorted.
func gaps(doc *capabilitiesv1.Capabilities) []gap {
	var all []gap
	for _, u := range doc.GetUnknown() {
		path := normal(u.GetFact())
		if path == "host.nested" { // a parameter of KVM's modules
			path = "hypervisors.kvm.nested"
		}
		all = append(all, gap{path: path, fact: u.GetFact(), reason: u.GetReason()})
	}
	slices.SortFunc(all, func(a, b gap) int {
		return cmp.Or(strings.Compare(a.fact, b.fact), strings.Compare(a.reason, b.reason))
	})
	return all
}

// tried are the hypervisors whose state is known: what else of them could not be
// asked would not have changed which one is chosen.
func tried(doc *capabilitiesv1.Capabilities) map[string]bool {
	names := map[string]bool{}
	for _, h := range doc.GetHypervisors() {
		names[normal(h.GetName())] = h.GetState() != unasked
	}
	return names
}

// settled are the VMMs that work and those after the default one: they would
// not have been chosen, or could have been.
func settled(doc *capabilitiesv1.Capabilities) map[string]bool {
	names, after := map[string]bool{}, false
	for _, m := range doc.GetVmms() {
		names[normal(m.GetName())] = after || m.GetState() == works
		after = after || m.GetName() == doc.GetDefaultVmm()
	}
	return names
}

// undecided returns what could not be asked and might have been chosen in place
// of chosen, which those that are settled can't.
func (c choice) undecided(kind, chosen string, settled map[string]bool) *gap {
	for _, g := range c.unknown {
		first, rest, _ := strings.Cut(g.path, ".")
		if first != kind {
			continue
		}
		name, detail, _ := strings.Cut(rest, ".")
		if detail != "" && detail != "state" || name != "" && (name == normal(chosen) || settled[name]) {
			continue
		}
		g.choice = true
		return &g
	}
	return nil
}

// unasked reports whether a fact that the labels follow from is unknown.
func (c choice) unasked(f family, name string) (gap, bool) {
	for _, fact := range f.facts {
		switch {
		case c.hypervisorGap != nil && strings.Contains(fact, "{hypervisor}"):
			return *c.hypervisorGap, true
		case c.vmmGap != nil && strings.Contains(fact, "{vmm}"):
			return *c.vmmGap, true
		}
		path := c.path(fact, name)
		for _, g := range c.unknown {
			if within(path, g.path) || within(g.path, path) {
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
		if slices.ContainsFunc(families(), func(f family) bool { return s.choice.hangs(f, g) }) {
			out = append(out, g.fact+": "+g.reason)
		}
	}
	return slices.Compact(out)
}

// hangs reports whether some label of a family follows from what could not be asked.
func (c choice) hangs(f family, g gap) bool {
	return slices.ContainsFunc(f.facts, func(fact string) bool {
		// A label for each name hangs on any name: try those of the gap.
		return slices.ContainsFunc(strings.Split(g.path, "."), func(name string) bool {
			path := c.path(fact, name)
			return within(path, g.path) || within(g.path, path)
		})
	})
}

// path is where a fact of a family is in the document of this choice.
func (c choice) path(fact, name string) string {
	return normal(strings.NewReplacer("{hypervisor}", c.hypervisor, "{vmm}", c.vmm, "{name}", name).Replace(fact))
}

// within reports whether a path is another or below it.
func within(path, above string) bool {
	return path == above || strings.HasPrefix(path, above+".")
}

// normal is a path in which it doesn't matter how words are joined:
// "hypervFeatures", "hyperv_features".
func normal(path string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(path))
}
