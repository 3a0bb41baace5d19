// Package overrides has what users say of one managed object by annotations on it: a patch, fields
// that are theirs, and that all of it is theirs. It must not know a cluster. Start reading at Patch
// and Mask.
package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
)

// Annotations of a managed object.
const (
	PatchAnnotation  = anchor.Prefix + "patch"
	IgnoreAnnotation = anchor.Prefix + "ignore-fields"
	ModeAnnotation   = anchor.Prefix + "mode"
	Unmanaged        = "unmanaged"
	// PausedAnnotation is the autopilot's own: it has lost an edit war. Without it, it goes on.
	PausedAnnotation = anchor.Prefix + "reconcile-paused"
)

// Bounds of annotations.
const (
	maxPatch      = 64 << 10 // bytes
	maxOperations = 256
	maxPointers   = 256
)

// unpatched are kinds on which a patch is refused: with one, anyone who may write an annotation would
// grant rights with those of the autopilot.
func unpatched() []string {
	return []string{
		"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "PodSecurityPolicy", "SecurityContextConstraints",
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy",
	}
}

// fixed are fields that neither a patch nor a mask may touch, nor what is below them.
func fixed() []string {
	return []string{"/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/metadata/uid", "/metadata/managedFields", "/status"}
}

func isFixed(pointer string) bool {
	return pointer == "" || pointer == "/metadata" || slices.ContainsFunc(fixed(), func(f string) bool {
		return pointer == f || strings.HasPrefix(pointer, f+"/")
	})
}

// Patch applies an RFC 6902 patch to a copy of an object: all of it, or none. It returns how many
// operations it has.
func Patch(object *unstructured.Unstructured, text string) (*unstructured.Unstructured, int, error) {
	if slices.Contains(unpatched(), object.GetKind()) {
		return nil, 0, fmt.Errorf("%s: sensitive resource kind: %s can't be patched", PatchAnnotation, object.GetKind())
	}
	if len(text) > maxPatch {
		return nil, 0, fmt.Errorf("%s has more than %d bytes", PatchAnnotation, maxPatch)
	}
	patch, err := jsonpatch.DecodePatch([]byte(text))
	if err != nil {
		return nil, 0, fmt.Errorf("%s is no JSON list of operations (RFC 6902): %w", PatchAnnotation, err)
	}
	if err := checkPaths(patch); err != nil {
		return nil, len(patch), err
	}
	before, err := json.Marshal(object.Object)
	if err != nil {
		return nil, len(patch), err
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = 1 << 20
	after, err := patch.ApplyWithOptions(before, options)
	if err != nil {
		return nil, len(patch), fmt.Errorf("%s: %w", PatchAnnotation, err)
	}
	patched := &unstructured.Unstructured{}
	if err := patched.UnmarshalJSON(after); err != nil {
		return nil, len(patch), fmt.Errorf("%s: what is left is no object: %w", PatchAnnotation, err)
	}
	// The paths above are those that are known. What counts is the object that comes out.
	if identity(patched) != identity(object) {
		return nil, len(patch), fmt.Errorf("%s: forbidden: it makes %s of %s", PatchAnnotation, identity(patched), identity(object))
	}
	if patched.GetLabels()[catalog.ManagedByLabel] != object.GetLabels()[catalog.ManagedByLabel] {
		return nil, len(patch), fmt.Errorf("%s: forbidden: it changes the label %s", PatchAnnotation, catalog.ManagedByLabel)
	}
	return patched, len(patch), nil
}

func identity(o *unstructured.Unstructured) string {
	return o.GetAPIVersion() + " " + o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// checkPaths finds all operations that are refused.
func checkPaths(patch jsonpatch.Patch) error {
	var faults []error
	if len(patch) > maxOperations {
		faults = append(faults, fmt.Errorf("%s has more than %d operations", PatchAnnotation, maxOperations))
	}
	for i, operation := range patch {
		path, err := operation.Path()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: [%d].path: %w", PatchAnnotation, i, err))
			continue
		}
		from, _ := operation.From() // only copy and move have one
		if isFixed(path) {
			faults = append(faults, fmt.Errorf("%s: [%d].path: %q is forbidden", PatchAnnotation, i, path))
		}
		if (operation.Kind() == "move" || operation.Kind() == "copy") && isFixed(from) {
			faults = append(faults, fmt.Errorf("%s: [%d].from: %q is forbidden", PatchAnnotation, i, from))
		}
	}
	return errors.Join(faults...)
}

// ParseIgnored reads the annotation IgnoreAnnotation: RFC 6901 pointers, separated by commas. Each
// is returned as the keys that lead to a field. The error has all faults.
func ParseIgnored(text string) ([][]string, error) {
	pointers := strings.Split(text, ",")
	if len(pointers) > maxPointers {
		return nil, fmt.Errorf("%s has more than %d fields", IgnoreAnnotation, maxPointers)
	}
	var all [][]string
	var faults []error
	for _, pointer := range pointers {
		if pointer = strings.TrimSpace(pointer); pointer == "" {
			continue
		}
		switch {
		case !strings.HasPrefix(pointer, "/"):
			faults = append(faults, fmt.Errorf("%s: %.100q does not begin with /", IgnoreAnnotation, pointer))
			continue
		case isFixed(pointer), strings.HasPrefix(pointer, "/metadata/labels/"+escaped(catalog.ManagedByLabel)), pointer == "/metadata/labels":
			faults = append(faults, fmt.Errorf("%s: %.100q is forbidden", IgnoreAnnotation, pointer))
			continue
		case strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(pointer), "~"):
			faults = append(faults, fmt.Errorf("%s: %.100q: ~ is written ~0, and / in a key ~1", IgnoreAnnotation, pointer))
			continue
		}
		keys := strings.Split(pointer[1:], "/")
		for i, key := range keys {
			keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		}
		all = append(all, keys)
	}
	return all, errors.Join(faults...)
}

func escaped(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// Mask leaves fields of a copy of an object to others: it removes them. What is inside a list, or a map that an
// apply replaces as a whole, gets its live value instead: without it the apply would take it away. The error has
// all fields that can't be found in a list.
func Mask(object, live *unstructured.Unstructured, fields [][]string) (*unstructured.Unstructured, error) {
	masked := object.DeepCopy()
	owned := ownedBy(live, func(metav1.ManagedFieldsEntry) bool { return true })
	var faults []error
	for _, keys := range fields {
		if err := mask(masked.Object, owned, live.Object, keys, false); err != nil {
			faults = append(faults, fmt.Errorf("%s: /%s: %w", IgnoreAnnotation, strings.Join(keys, "/"), err))
		}
	}
	return masked, errors.Join(faults...)
}

// mask leaves one field of a value to others. set is what is owned of the value, whole, whether an apply replaces it
// as a whole.
func mask(value, set, live any, keys []string, whole bool) error {
	key, last := keys[0], len(keys) == 1
	switch in := value.(type) {
	case map[string]any:
		theirs, there := child(live, key)
		switch {
		case last && whole && there:
			in[key] = runtime.DeepCopyJSONValue(theirs)
		case last:
			delete(in, key)
		default:
			set, _ = child(set, "f:"+key)
			whole = whole || replaced(set, theirs)
			if _, nested := theirs.(map[string]any); whole && nested && in[key] == nil {
				in[key] = make(map[string]any) // all of it is theirs
			}
			return mask(in[key], set, theirs, keys[1:], whole)
		}
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 {
			return fmt.Errorf("%.100q is not the index of a list item (the first item is 0)", key)
		}
		if i >= len(in) {
			return nil // as a field that is not there
		}
		theirs, there := counterpart(in[i], i, live, keys[1:])
		switch {
		case there && last:
			in[i] = runtime.DeepCopyJSONValue(theirs)
		case there:
			return mask(in[i], nil, theirs, keys[1:], true)
		}
	}
	return nil
}

// replaced reports whether a map has one owner for all of it. A map with fields of several owners has none, though it looks
// the same to an owner without fields in it.
func replaced(set, live any) bool {
	leaf, owned := set.(map[string]any)
	there, _ := live.(map[string]any)
	return owned && len(leaf) == 0 && len(there) > 0
}

// counterpart is the item of a live list that is the same as one of another list: the one with its name or path,
// as somebody may have put others in front, else the one at its place. So is one whose name is the field.
func counterpart(item any, place int, live any, field []string) (any, bool) {
	all, _ := live.([]any)
	for _, key := range []string{"name", "path"} {
		if name, named := child(item, key); named && !slices.Equal(field, []string{key}) {
			i := slices.IndexFunc(all, func(other any) bool {
				theirs, is := child(other, key)
				return is && reflect.DeepEqual(theirs, name)
			})
			if i < 0 {
				return nil, false
			}
			return all[i], true
		}
	}
	if place >= len(all) {
		return nil, false
	}
	return all[place], true
}

// Owned is the part of a live object below fields that a manager owns by server-side apply: what
// has to be handed over before it is left out of the next apply, which would delete it. It is nil
// if the manager owns none of it.
func Owned(live *unstructured.Unstructured, manager string, fields [][]string) map[string]any {
	owned := Fields(live, manager)
	if owned == nil {
		return nil
	}
	var part map[string]any
	for _, keys := range fields {
		set, value := any(owned), any(live.Object)
		for _, key := range keys {
			set, _ = child(set, "f:"+key)
			value, _ = child(value, key)
		}
		if set == nil || value == nil {
			continue
		}
		if part == nil {
			part = make(map[string]any)
		}
		in := part
		for _, key := range keys[:len(keys)-1] {
			if _, has := in[key].(map[string]any); !has {
				in[key] = make(map[string]any)
			}
			in = in[key].(map[string]any)
		}
		in[keys[len(keys)-1]] = leaves(set, value)
	}
	return part
}

// All is the part of a live object that a manager owns by server-side apply.
func All(live *unstructured.Unstructured, manager string) (part map[string]any) {
	if set := Fields(live, manager); len(set) > 0 {
		part, _ = leaves(set, live.Object).(map[string]any)
	}
	return part
}

// Merge is all that two objects have; where both have a value that is no map, the second's.
func Merge(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	if all == nil {
		all = make(map[string]any)
	}
	for key, value := range b {
		x, xIs := a[key].(map[string]any)
		y, yIs := value.(map[string]any)
		if all[key] = value; xIs && yIs {
			all[key] = Merge(x, y)
		}
	}
	return all
}

// Fields are those that a manager owns by server-side apply, in the form of FieldsV1; nil: none.
func Fields(live *unstructured.Unstructured, manager string) map[string]any {
	return ownedBy(live, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == ""
	})
}

func ownedBy(live *unstructured.Unstructured, is func(metav1.ManagedFieldsEntry) bool) (all map[string]any) {
	for _, m := range live.GetManagedFields() {
		var set map[string]any
		if is(m) && m.FieldsV1 != nil && json.Unmarshal(m.FieldsV1.GetRawBytes(), &set) == nil {
			all = Merge(all, set)
		}
	}
	return all
}

// Taken reports whether others own one of the fields of a live object, and the manager, which owns
// others, does not: it never had it, or somebody has changed it since.
func Taken(live *unstructured.Unstructured, manager string, fields [][]string) bool {
	mine := Fields(live, manager)
	others := ownedBy(live, func(m metav1.ManagedFieldsEntry) bool { return m.Manager != manager })
	return mine != nil && slices.ContainsFunc(fields, func(keys []string) bool { return has(others, keys) && !has(mine, keys) })
}

// has reports whether a field is in a set, or in what the set has as a whole.
func has(set any, keys []string) bool {
	for _, key := range keys {
		if set, _ = child(set, "f:"+key); set == nil {
			return false
		}
		if fields, _ := set.(map[string]any); len(fields) == 0 {
			return true
		}
	}
	return true
}

func child(of any, key string) (any, bool) {
	in, _ := of.(map[string]any)
	value, is := in[key]
	return value, is
}

// leaves are the parts of a value that a set has. Lists are taken whole.
func leaves(set, value any) any {
	in, is := value.(map[string]any)
	fields, _ := set.(map[string]any)
	if !is || len(fields) == 0 {
		return value
	}
	part := make(map[string]any)
	for field, below := range fields {
		if key, is := strings.CutPrefix(field, "f:"); is {
			if v, has := in[key]; has {
				part[key] = leaves(below, v)
			}
		}
	}
	return part
}
