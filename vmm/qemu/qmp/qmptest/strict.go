package qmptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// Type is the JSON type of an argument, by QAPI's name for it.
type Type string

// The types of arguments.
const (
	Any    Type = "any"
	Str    Type = "string"
	Int    Type = "integer"
	Number Type = "number"
	Bool   Type = "boolean"
	Object Type = "object"
	Array  Type = "array"
)

// Args are the arguments that a command takes, and their types. As in QAPI's own
// schema a name that begins with an asterisk is one that may be left out:
//
//	Args{"fdname": Str, "*opaque": Str}
//
// An empty Args takes none at all, a nil one is not checked.
type Args map[string]Type

// check refuses what QEMU's input visitor does: a member that is missing, has
// the wrong type or is none of the command's.
func (a Args) check(raw json.RawMessage) error {
	given, err := object(raw)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, declared := range names {
		name, optional := strings.CutPrefix(declared, "*")
		value, ok := given[name]
		switch {
		case !ok && !optional:
			return generic("Parameter '%s' is missing", name)
		case ok && !a[declared].accepts(value):
			return generic("Invalid parameter type for '%s', expected: %s", name, a[declared])
		}
		delete(given, name)
	}
	for name := range given {
		return generic("Parameter '%s' is unexpected", name)
	}
	return nil
}

// accepts tells whether a value is of the type. QEMU's types are strict: "1" is no
// integer, 1.5 neither, and null is nothing but itself.
func (t Type) accepts(value json.RawMessage) bool {
	var v any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return false
	}
	switch v := v.(type) {
	case string:
		return t == Str || t == Any
	case bool:
		return t == Bool || t == Any
	case json.Number:
		return t == Number || t == Any || t == Int && !strings.ContainsAny(v.String(), ".eE")
	case map[string]any:
		return t == Object || t == Any
	case []any:
		return t == Array || t == Any
	}
	return t == Any
}

// requestError is a document that is JSON and no command.
type requestError struct {
	id  json.RawMessage
	err error
}

func (e *requestError) Error() string { return e.err.Error() }

// firstDocument splits a line after its first JSON document.
func firstDocument(line []byte) (document json.RawMessage, rest []byte, err error) {
	if !utf8.Valid(line) {
		return nil, nil, errors.New("invalid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if err := d.Decode(&document); err != nil {
		return nil, nil, err
	}
	return document, line[d.InputOffset():], nil
}

// parse checks a document's form: what it has to have, and nothing besides.
func (c *session) parse(document json.RawMessage) (*Request, error) {
	if document[0] != '{' {
		return nil, &requestError{err: generic("QMP input must be a JSON object")}
	}
	members, err := object(document)
	if err != nil {
		return nil, err
	}
	r := &Request{session: c, id: members["id"], Arguments: json.RawMessage("{}")}
	refuse := func(format string, args ...any) (*Request, error) {
		return nil, &requestError{r.id, generic(format, args...)}
	}
	for name, value := range members {
		switch name {
		case "id":
		case "execute":
			if !Str.accepts(value) {
				return refuse("QMP input member 'execute' must be a string")
			}
			if err := json.Unmarshal(value, &r.Command); err != nil {
				return nil, err
			}
		case "arguments":
			if !Object.accepts(value) {
				return refuse("QMP input member 'arguments' must be an object")
			}
			if _, err := object(value); err != nil {
				return nil, err
			}
			r.Arguments = value
		default:
			return refuse("QMP input member '%s' is unexpected", name)
		}
	}
	if _, ok := members["execute"]; !ok {
		return refuse("QMP input lacks member 'execute'")
	}
	return r, nil
}

// object decodes an object without repeated members, which encoding/json
// would take and QEMU does not.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	members := make(map[string]json.RawMessage)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("name of a member expected, found %v", token)
		}
		if _, twice := members[name]; twice {
			return nil, errors.New("duplicate key")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		members[name] = value
	}
	return members, nil
}

func generic(format string, args ...any) error {
	return &qmp.Error{Class: qmp.GenericError, Desc: fmt.Sprintf(format, args...)}
}
