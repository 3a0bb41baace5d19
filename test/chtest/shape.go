package chtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"unicode/utf8"
)

// tree is a JSON object that was checked: every field that has a default is
// there, and none that is null.
type tree = map[string]any

// shape checks a JSON value and returns it as it is kept.
type shape func(raw json.RawMessage) (any, error)

// field is one of an object's. As serde has it a field that is neither required
// nor has a default is optional, and may be null; others may not.
type field struct {
	name     string
	shape    shape
	required bool
	fallback func() any // nil: none
	alias    string
}

func need(name string, s shape) field { return field{name: name, shape: s, required: true} }
func may(name string, s shape) field  { return field{name: name, shape: s} }
func def(name string, s shape, value any) field {
	return field{name: name, shape: s, fallback: func() any { return value }}
}

// record is an object. Fields that it doesn't know are left out.
func record(groups ...[]field) shape {
	fields := slices.Concat(groups...)
	return func(raw json.RawMessage) (any, error) {
		given, err := members(raw)
		if err != nil {
			return nil, err
		}
		out := tree{}
		for _, f := range fields {
			if err := f.take(given, out); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

func (f field) take(given map[string]json.RawMessage, out tree) error {
	raw, ok := given[f.name]
	if other, both := given[f.alias]; both && f.alias != "" {
		if ok {
			return fmt.Errorf("field %q is given twice", f.name)
		}
		raw, ok = other, true
	}
	optional := !f.required && f.fallback == nil
	switch {
	case !ok && f.required:
		return fmt.Errorf("field %q is missing", f.name)
	case !ok && optional, ok && optional && string(raw) == "null":
		return nil
	case !ok:
		out[f.name] = f.fallback()
		return nil
	}
	value, err := f.shape(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	out[f.name] = value
	return nil
}

// members are an object's, none of which may come twice.
func members(raw json.RawMessage) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	open, err := d.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, fmt.Errorf("an object is expected, not %.40s", raw)
	}
	found := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("%v is no field's name", token)
		}
		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("field %q is given twice", name)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		found[name] = value
	}
	_, err = d.Token()
	return found, err
}

// document checks a whole body: one value, in UTF-8, with nothing after it.
func document(body []byte, s shape) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("not UTF-8")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, err
	}
	return s(raw)
}

func list(s shape) shape {
	return func(raw json.RawMessage) (any, error) {
		var items []json.RawMessage
		if string(raw) == "null" || json.Unmarshal(raw, &items) != nil {
			return nil, fmt.Errorf("an array is expected, not %.40s", raw)
		}
		out := make([]any, 0, len(items))
		for i, item := range items {
			value, err := s(item)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			out = append(out, value)
		}
		return out, nil
	}
}

// unsigned is an integer of so many bits.
func unsigned(bits int) shape {
	return func(raw json.RawMessage) (any, error) {
		n, err := strconv.ParseUint(string(raw), 10, bits)
		if err != nil {
			return nil, fmt.Errorf("an unsigned integer of %d bits is expected, not %.40s", bits, raw)
		}
		return n, nil
	}
}

func boolean(raw json.RawMessage) (any, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return nil, fmt.Errorf("true or false is expected, not %.40s", raw)
}

func text(raw json.RawMessage) (any, error) {
	var s string
	if string(raw) == "null" || json.Unmarshal(raw, &s) != nil {
		return nil, fmt.Errorf("a string is expected, not %.40s", raw)
	}
	return s, nil
}

// oneOf is a word of a list, in the very letters.
func oneOf(words ...string) shape {
	return func(raw json.RawMessage) (any, error) {
		value, err := text(raw)
		if word, ok := value.(string); err == nil && ok && slices.Contains(words, word) {
			return word, nil
		}
		return nil, fmt.Errorf("%.60s is none of %q", raw, words)
	}
}

func hardwareAddress(raw json.RawMessage) (any, error) {
	value, err := text(raw)
	if err != nil {
		return nil, err
	}
	address, err := net.ParseMAC(value.(string))
	if err != nil || len(address) != 6 {
		return nil, fmt.Errorf("%.60s is no MAC address", raw)
	}
	return address.String(), nil
}

// deadDescriptors are numbers of descriptors in a body: they mean nothing, and
// are kept as -1 so that it can be seen how many there were.
func deadDescriptors(raw json.RawMessage) (any, error) {
	var given []int32
	if string(raw) == "null" || json.Unmarshal(raw, &given) != nil {
		return nil, fmt.Errorf("an array of descriptors is expected, not %.40s", raw)
	}
	dead := make([]any, len(given))
	for i := range dead {
		dead[i] = -1
	}
	return dead, nil
}
