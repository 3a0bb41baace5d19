// Package strictyaml reads configuration files: what isn't known or doesn't fit
// is refused, all of it at once, each with its line and its key.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// maxDepth bounds how deep keys may be nested: the deepest that is known has
// five levels.
const maxDepth = 32

// Others, as an inline field, takes the keys for which the struct has no other field.
// They belong to another program, and nothing is said of their values.
type Others map[string]yaml.Node

// Load reads the only document of a file into a pointer to a struct with yaml
// tags. The keys of an inline struct are those of the struct that it is in. An empty
// file changes nothing.
func Load(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(content) > maxFile {
		return fmt.Errorf("%s: more than %d bytes: that is no configuration", path, maxFile)
	}
	return Parse(content, path, into)
}

// Parse is Load of what was read; the filename is for the errors.
func Parse(content []byte, filename string, into any) error {
	var document yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(content))
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", filename, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: it has a second document: a configuration is one", filename)
	}
	root := document.Content[0]
	c := checker{filename: filename}
	c.check(root, reflect.TypeOf(into).Elem(), "", 0)
	if err := errors.Join(c.faults...); err != nil {
		return err
	}
	if err := root.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", filename, err)
	}
	return nil
}

// checker collects what is wrong with a document.
type checker struct {
	filename string
	faults   []error
}

func (c *checker) fault(n *yaml.Node, key, format string, args ...any) {
	if key != "" {
		key += ": "
	}
	c.faults = append(c.faults, fmt.Errorf("%s:%d: %s%s", c.filename, n.Line, key, fmt.Sprintf(format, args...)))
}

// check compares a node with the type that it is to become.
func (c *checker) check(n *yaml.Node, t reflect.Type, key string, depth int) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.fault(n, key, "anchors and aliases (& and *) aren't taken: write it out")
	case depth > maxDepth:
		c.fault(n, key, "nested too deep")
	case n.Tag == "!!null":
		// A key with nothing after it is one left out.
	case t.Kind() == reflect.Struct:
		c.checkStruct(n, t, key, depth)
	case t.Kind() == reflect.Map:
		c.checkMap(n, t, key, depth)
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			c.fault(n, key, "want a list")
			return
		}
		for i, element := range n.Content {
			c.check(element, t.Elem(), fmt.Sprintf("%s[%d]", key, i), depth+1)
		}
	default:
		c.checkScalar(n, t, key)
	}
}

func (c *checker) checkStruct(n *yaml.Node, t reflect.Type, key string, depth int) {
	if n.Kind != yaml.MappingNode {
		c.fault(n, key, "want keys and values: %s", strings.Join(keysOf(t), ", "))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		field, known := fieldOf(t, name.Value)
		switch {
		case !known && !takesOthers(t):
			c.fault(name, key, "unknown key %.60q: there are %s", name.Value, strings.Join(keysOf(t), ", "))
		case seen[name.Value]:
			c.fault(name, key, "%q is listed twice", name.Value)
		case known:
			c.check(value, field.Type, join(key, name.Value), depth+1)
		}
		seen[name.Value] = true
	}
}

func (c *checker) checkMap(n *yaml.Node, t reflect.Type, key string, depth int) {
	if n.Kind != yaml.MappingNode {
		c.fault(n, key, "want keys and values")
		return
	}
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if seen[name.Value] {
			c.fault(name, key, "%.60q is listed twice", name.Value)
		}
		seen[name.Value] = true
		c.check(name, t.Key(), key, depth+1)
		c.check(value, t.Elem(), join(key, name.Value), depth+1)
	}
}

func (c *checker) checkScalar(n *yaml.Node, t reflect.Type, key string) {
	value := reflect.New(t)
	if n.Kind == yaml.ScalarNode && n.Decode(value.Interface()) == nil {
		return
	}
	if n.Kind != yaml.ScalarNode {
		c.fault(n, key, "want %s, not a list or keys", wanted(t))
		return
	}
	c.fault(n, key, "%.60q: want %s", n.Value, wanted(t))
}

// wanted words a type for people.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<(t.Bits()-1)<<1-1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "text"
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// fieldOf finds the field with this key.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for _, f := range fieldsOf(t) {
		if keyOf(f) == key && key != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// keysOf lists the keys of a struct, sorted.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		if key := keyOf(f); key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// fieldsOf lists the fields of a struct, with those of an inline struct in its place.
func fieldsOf(t reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		if inline(f) && f.Type.Kind() == reflect.Struct {
			fields = append(fields, fieldsOf(f.Type)...)
		} else {
			fields = append(fields, f)
		}
	}
	return fields
}

// takesOthers reports whether a struct takes keys that it has no field for.
func takesOthers(t reflect.Type) bool {
	return slices.ContainsFunc(fieldsOf(t), func(f reflect.StructField) bool {
		return inline(f) && f.Type == reflect.TypeFor[Others]()
	})
}

func inline(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return options == "inline"
}

// keyOf is the key that a field's tag gives it; empty: it isn't configuration.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" {
		return ""
	}
	return key
}
