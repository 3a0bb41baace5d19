package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// converter turns YAML nodes into values for protojson, following the message
// descriptors. Going by the descriptor rather than by what YAML makes of a
// scalar keeps "yes", 1e3, 0123 and 2026-01-01 what the user wrote where a
// string is wanted, and lets every fault name its field and line.
type converter struct {
	filename string
	// nodes read so far: YAML's aliases can make few bytes mean many values.
	nodes int
}

// maxNodes is far above any specification and far below what would hurt.
const maxNodes = 100_000

func (c *converter) errorf(n *yaml.Node, field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if field != "" {
		message = field + ": " + message
	}
	return &SyntaxError{Filename: c.filename, Line: n.Line, Message: message}
}

func (c *converter) count(n *yaml.Node, field string) error {
	if c.nodes++; c.nodes > maxNodes {
		return c.errorf(n, field, "more than %d values", maxNodes)
	}
	if n.Kind == yaml.AliasNode {
		return c.errorf(n, field, "YAML aliases (*%s) are not supported: write the value out", n.Value)
	}
	return nil
}

func (c *converter) message(n *yaml.Node, d protoreflect.MessageDescriptor, path string) (any, error) {
	if d.FullName() == "google.protobuf.Duration" {
		return c.duration(n, path)
	}
	out := make(map[string]any)
	err := c.entries(n, path, func(key, value *yaml.Node) error {
		field := d.Fields().ByJSONName(key.Value)
		if field == nil {
			field = d.Fields().ByTextName(key.Value)
		}
		if field == nil {
			return c.errorf(key, join(path, key.Value), "no such field: there are %s", strings.Join(fieldNames(d), ", "))
		}
		name := field.JSONName()
		if _, twice := out[name]; twice {
			return c.errorf(key, join(path, name), "is there twice")
		}
		if isNull(value) {
			return nil
		}
		if other := field.ContainingOneof(); other != nil && !other.IsSynthetic() {
			for i := range other.Fields().Len() {
				if sibling := other.Fields().Get(i).JSONName(); out[sibling] != nil {
					return c.errorf(key, join(path, name), "can't be beside %s: want one of them", sibling)
				}
			}
		}
		converted, err := c.field(value, field, join(path, name))
		out[name] = converted
		return err
	})
	return out, err
}

// entries calls f for each pair of a mapping.
func (c *converter) entries(n *yaml.Node, path string, f func(key, value *yaml.Node) error) error {
	if err := c.count(n, path); err != nil {
		return err
	}
	if n.Kind != yaml.MappingNode {
		return c.errorf(n, path, "%s where fields are wanted", describe(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return c.errorf(key, path, "%s where a field's name is wanted", describe(key))
		}
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (c *converter) field(n *yaml.Node, f protoreflect.FieldDescriptor, path string) (any, error) {
	switch {
	case f.IsMap():
		return c.dictionary(n, f.MapValue(), path)
	case f.IsList():
		return c.list(n, f, path)
	}
	return c.single(n, f, path)
}

func (c *converter) dictionary(n *yaml.Node, value protoreflect.FieldDescriptor, path string) (any, error) {
	out := make(map[string]any)
	err := c.entries(n, path, func(key, node *yaml.Node) error {
		if _, twice := out[key.Value]; twice {
			return c.errorf(key, mapField(path, key.Value), "is there twice")
		}
		converted, err := c.single(node, value, mapField(path, key.Value))
		out[key.Value] = converted
		return err
	})
	return out, err
}

func (c *converter) list(n *yaml.Node, f protoreflect.FieldDescriptor, path string) (any, error) {
	if err := c.count(n, path); err != nil {
		return nil, err
	}
	if n.Kind != yaml.SequenceNode {
		return nil, c.errorf(n, path, "%s where a list is wanted", describe(n))
	}
	out := make([]any, len(n.Content))
	for i, element := range n.Content {
		converted, err := c.single(element, f, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return nil, err
		}
		out[i] = converted
	}
	return out, nil
}

func (c *converter) single(n *yaml.Node, f protoreflect.FieldDescriptor, path string) (any, error) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return c.message(n, f.Message(), path)
	case protoreflect.BoolKind:
		return c.boolean(n, path)
	case protoreflect.Uint32Kind:
		return c.number(n, path)
	case protoreflect.StringKind:
		return c.text(n, path, "text")
	}
	return nil, c.errorf(n, path, "fields of type %s can't be read", f.Kind())
}

func (c *converter) scalar(n *yaml.Node, path, wanted string) error {
	if err := c.count(n, path); err != nil {
		return err
	}
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return c.errorf(n, path, "%s where %s is wanted", describe(n), wanted)
	}
	return nil
}

// text takes numbers and words like "on" as they are written: "size: 1024" is
// as good as "size: '1024'".
func (c *converter) text(n *yaml.Node, path, wanted string) (any, error) {
	if err := c.scalar(n, path, wanted); err != nil {
		return nil, err
	}
	if n.Tag == "!!binary" {
		return nil, c.errorf(n, path, "binary data where %s is wanted", wanted)
	}
	return n.Value, nil
}

// duration takes Go's and Kubernetes' way of writing them, of which protojson
// knows seconds only.
func (c *converter) duration(n *yaml.Node, path string) (any, error) {
	if err := c.scalar(n, path, "a duration such as 30s"); err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil {
		return nil, c.errorf(n, path, "%.40q is not a duration: want a number with s, m or h after it, such as 30s or 2m", n.Value)
	}
	encoded, err := protojson.Marshal(durationpb.New(d))
	return json.RawMessage(encoded), err
}

func (c *converter) boolean(n *yaml.Node, path string) (any, error) {
	if err := c.scalar(n, path, "true or false"); err != nil {
		return nil, err
	}
	if n.Value != "true" && n.Value != "false" || n.Tag != "!!bool" {
		return nil, c.errorf(n, path, "%.40q where true or false is wanted", n.Value)
	}
	return n.Value == "true", nil
}

func (c *converter) number(n *yaml.Node, path string) (any, error) {
	if err := c.scalar(n, path, "a number"); err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(n.Value, 10, 32)
	if err != nil || n.Tag != "!!int" {
		return nil, c.errorf(n, path, "%.40q where a whole number from 0 to %d is wanted", n.Value, uint32(math.MaxUint32))
	}
	return json.Number(strconv.FormatUint(number, 10)), nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func describe(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	}
	return fmt.Sprintf("%.40q", n.Value)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func mapField(path, key string) string { return fmt.Sprintf("%s[%.80s]", path, key) }

func fieldNames(d protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	slices.Sort(names)
	return names
}
