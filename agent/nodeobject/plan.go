package nodeobject

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wish is what the Node should have.
type wish struct {
	fields map[field]string
	// carried are written along with something else, and no reason to write.
	carried map[field]string
	// frozen are left as they are: one that we own stays ours, with the value
	// that it has, and one that we don't is not written.
	frozen func(field) bool
	// contested are known to be refused.
	contested func(f field, value string) bool
}

// Conflict is a field that we would write and that is somebody else's.
type Conflict struct {
	// Key of a label or annotation.
	Key string
	// Value that it has, and the one that we would have written.
	Value, Wanted string
	// Owners are the field managers that have it.
	Owners []string
}

// plan is one apply: what it names is ours afterwards, and what we have now and
// it doesn't name is gone, or left to those who have it in common with us.
type plan struct {
	fields map[field]string
	// changes are the fields for whose sake it is made, sorted: none, and there
	// is nothing to write.
	changes   []field
	conflicts []Conflict // sorted by key
}

// makePlan says what to write to a Node of this metadata.
func makePlan(meta *metav1.ObjectMeta, w wish) plan {
	own := owners(meta.ManagedFields)
	p := plan{fields: map[field]string{}}
	put := func(f field, value string, reason bool) {
		now, there := f.live(meta)
		switch owners := own.others[f]; {
		case there && now != value && len(owners) > 0, w.contested != nil && w.contested(f, value):
			if reason {
				p.conflicts = append(p.conflicts, Conflict{f.key, now, value, owners})
			}
			return
		case reason && (!own.ours[f] || now != value):
			p.changes = append(p.changes, f)
		}
		p.fields[f] = value
	}
	for f, value := range w.fields {
		if !w.freezes(f) {
			put(f, value, true)
		}
	}
	for f, value := range w.carried {
		if !w.freezes(f) {
			put(f, value, false)
		}
	}
	p.keep(meta, own, w)
	slices.SortFunc(p.changes, func(a, b field) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.key, b.key)) })
	slices.SortFunc(p.conflicts, func(a, b Conflict) int { return cmp.Compare(a.Key, b.Key) })
	return p
}

// keep decides about the fields that are ours now.
func (p *plan) keep(meta *metav1.ObjectMeta, own ownership, w wish) {
	for f := range own.ours {
		now, there := f.live(meta)
		_, named := p.fields[f]
		_, carried := w.carried[f]
		switch {
		case named || !there:
		case w.freezes(f):
			p.fields[f] = now
		case !carried: // no longer wanted, or lost to another owner
			p.changes = append(p.changes, f)
		}
	}
}

func (w wish) freezes(f field) bool { return w.frozen != nil && w.frozen(f) }
