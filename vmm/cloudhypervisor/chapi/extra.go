package chapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Extra has the members of an object that this package doesn't know, by name. They
// are from a newer VMM, or from one with more devices than vmlet gives it, and are
// written back as they came.
type Extra map[string]json.RawMessage

// decode decodes an object into known, a pointer to a struct without methods, and
// what that has no field for into extra.
func decode(data []byte, known any, extra *Extra) error {
	if err := json.Unmarshal(data, known); err != nil {
		return err
	}
	var members Extra
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	names := memberNames(reflect.TypeOf(known).Elem())
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) // as json does
	})
	*extra = nil
	if len(members) > 0 {
		*extra = members
	}
	return nil
}

// encode is the other direction: the known members, then the others sorted by name.
func encode(known any, extra Extra) ([]byte, error) {
	out, err := encodeJSON(known)
	if err != nil || len(extra) == 0 {
		return out, err
	}
	names := memberNames(reflect.TypeOf(known))
	out = out[:len(out)-1] // the closing brace
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			continue // the field has it
		}
		key, err := encodeJSON(name)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), extra[name]...)
	}
	return append(out, '}'), nil
}

// memberNames are the names that a struct's fields have in JSON. Embedded structs'
// are among them.
func memberNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			names = append(names, memberNames(field.Type)...)
		case name != "-":
			names = append(names, name)
		}
	}
	return names
}
