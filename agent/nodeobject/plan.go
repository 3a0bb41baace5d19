package nodeobject

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/contract"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// it doesn't name is gone, or left to its other owners.
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

// field is one label or annotation.
type field struct {
	kind, key string
}

// Kinds of fields, by their names in an object's metadata.
const (
	labelField      = "labels"
	annotationField = "annotations"
)

func label(key string) field      { return field{labelField, key} }
func annotation(key string) field { return field{annotationField, key} }

// live is what the object has in the field.
func (f field) live(meta *metav1.ObjectMeta) (value string, there bool) {
	if f.kind == annotationField {
		value, there = meta.Annotations[f.key]
	} else {
		value, there = meta.Labels[f.key]
	}
	return value, there
}

// ownership is the field managers of the labels and annotations (managedFields). A
// manager that shares a field with us counts as an owner, too.
type ownership struct {
	ours   map[field]bool
	others map[field][]string // by field, the names of the managers, sorted
}

// owners reads an object's managed fields. An entry that can't be read is nobody's:
// the API server has the last word, and refuses what isn't ours.
func owners(entries []metav1.ManagedFieldsEntry) ownership {
	o := ownership{ours: map[field]bool{}, others: map[field][]string{}}
	for _, e := range entries {
		fields := fieldsOf(e)
		if e.Manager == kube.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
			for _, f := range fields {
				o.ours[f] = true
			}
			continue
		}
		for _, f := range fields {
			o.others[f] = append(o.others[f], e.Manager)
		}
	}
	for f, names := range o.others {
		slices.Sort(names)
		o.others[f] = slices.Compact(names)
	}
	return o
}

// fieldsOf are the labels and annotations of an entry. The format is that of
// FieldsV1: {"f:metadata": {"f:labels": {"f:KEY": {}}}}.
func fieldsOf(e metav1.ManagedFieldsEntry) []field {
	if e.FieldsV1 == nil {
		return nil
	}
	var set struct {
		Metadata map[string]json.RawMessage `json:"f:metadata"`
	}
	if json.Unmarshal(e.FieldsV1.GetRawBytes(), &set) != nil {
		return nil
	}
	var all []field
	for _, kind := range []string{labelField, annotationField} {
		var keys map[string]json.RawMessage
		if json.Unmarshal(set.Metadata["f:"+kind], &keys) != nil {
			continue
		}
		for k := range keys {
			if key, is := strings.CutPrefix(k, "f:"); is {
				all = append(all, field{kind, key})
			}
		}
	}
	return all
}

// isHealth: a field says something of a running agent, not of the machine.
func isHealth(f field) bool {
	return f.kind == annotationField || f.key == contract.LabelSchedulable || f.key == contract.LabelCPUManager
}

// isKubeVirt: a field is one of KubeVirt's families, which a virt-handler writes.
func isKubeVirt(f field) bool {
	domain, _, _ := strings.Cut(f.key, "/")
	return domain == "kubevirt.io" || strings.HasSuffix(domain, ".kubevirt.io")
}

// conflictsOf are the fields that the API server refused because they are another
// manager's.
func conflictsOf(err error) []field {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var fields []field
	for _, c := range status.Status().Details.Causes {
		for _, kind := range []string{labelField, annotationField} {
			if key, is := strings.CutPrefix(c.Field, ".metadata."+kind+"."); is && c.Type == metav1.CauseTypeFieldManagerConflict {
				fields = append(fields, field{kind, key})
			}
		}
	}
	return fields
}
