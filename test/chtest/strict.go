package chtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// document reads a whole body into a structure, as serde reads it for the real one:
// one value, in UTF-8, with nothing after it. A member of a structure is required if
// its field has the tag must, or has the default of the tag default; all others are
// optional, and may be null. Members that the structure doesn't have are dropped. Of
// the tag oneof are a text's only values, of alias is a member's other name.
func document(body []byte, into any) error {
	if !utf8.Valid(body) {
		return errors.New("not UTF-8")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return err
	}
	return decode(raw, reflect.ValueOf(into).Elem())
}

func decode(raw json.RawMessage, into reflect.Value) error {
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return decode(raw, into.Elem())
	case reflect.Struct:
		given, err := members(raw)
		if err != nil {
			return err
		}
		return decodeFields(given, into)
	case reflect.Slice:
		return decodeList(raw, into)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(string(raw), 10, into.Type().Bits())
		if err != nil {
			return fmt.Errorf("an unsigned integer of %d bits is expected, not %.40s", into.Type().Bits(), raw)
		}
		into.SetUint(n)
		return nil
	}
	if string(raw) == "null" || json.Unmarshal(raw, into.Addr().Interface()) != nil {
		expected := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a string", reflect.Int: "a descriptor"}
		return fmt.Errorf("%s is expected, not %.40s", expected[into.Kind()], raw)
	}
	return nil
}

func decodeList(raw json.RawMessage, into reflect.Value) error {
	var items []json.RawMessage
	if string(raw) == "null" || json.Unmarshal(raw, &items) != nil {
		return fmt.Errorf("an array is expected, not %.40s", raw)
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		if err := decode(item, into.Index(i)); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

func decodeFields(given map[string]json.RawMessage, into reflect.Value) error {
	for i := range into.NumField() {
		field := into.Type().Field(i)
		if field.Anonymous {
			if err := decodeFields(given, into.Field(i)); err != nil {
				return err
			}
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		raw, err := member(given, name, field.Tag)
		if err == nil && raw != nil {
			err = decode(raw, into.Field(i))
		}
		if err == nil && raw != nil {
			err = checkText(into.Field(i), field.Tag)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// member returns what a field is read from, or nil if it stays as it is.
func member(given map[string]json.RawMessage, name string, tag reflect.StructTag) (json.RawMessage, error) {
	raw, present := given[name]
	if other, both := given[tag.Get("alias")]; both {
		if present {
			return nil, errors.New("it is given twice")
		}
		raw, present = other, true
	}
	_, must := tag.Lookup("must")
	fallback, has := tag.Lookup("default")
	switch {
	case !present && must:
		return nil, errors.New("it is missing")
	case !present && has:
		return json.RawMessage(fallback), nil
	case !present, string(raw) == "null" && !must && !has:
		return nil, nil
	}
	return raw, nil
}

func checkText(value reflect.Value, tag reflect.StructTag) error {
	if words, has := tag.Lookup("oneof"); has && !slices.Contains(strings.Fields(words), value.String()) {
		return fmt.Errorf("%.60q is none of %q", value.String(), words)
	}
	if _, is := tag.Lookup("mac"); is {
		if address, err := net.ParseMAC(value.String()); err != nil || len(address) != 6 {
			return fmt.Errorf("%.60q is no MAC address", value.String())
		}
	}
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
