package nodeobject

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/agent/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// ownership is who has which labels and annotations, as the API server sees it
// (managedFields). Who has a field in common with us counts as an owner, too.
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
