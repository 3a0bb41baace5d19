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
	faults   []error
	// nodes read so far: YAML's aliases can make few bytes mean many values.
	nodes int
}

const (
	// maxNodes is far above any specification and far below what would hurt.
	maxNodes = 100_000
	// maxFaults are reported; a file with more is no specification.
	maxFaults = 30
)

// fault notes what is wrong, and returns nil for what can't be read.
func (c *converter) fault(n *yaml.Node, field, format string, args ...any) any {
	if c.over() {
		return nil
	}
	message := fmt.Sprintf(format, args...)
	if field != "" {
		message = field + ": " + message
	}
	if len(c.faults) == maxFaults {
		message = "there is more that can't be read, from here on"
	}
	c.faults = append(c.faults, &SyntaxError{Filename: c.filename, Line: n.Line, Message: message})
	return nil
}

// over: there are faults enough.
func (c *converter) over() bool { return len(c.faults) > maxFaults }

// count says whether a node is to be read.
func (c *converter) count(n *yaml.Node, field string) bool {
	c.nodes++
	switch {
	case c.nodes > maxNodes+1:
		return false
	case c.nodes > maxNodes:
		c.fault(n, field, "more than %d values", maxNodes)
		return false
	case n.Kind == yaml.AliasNode:
		c.fault(n, field, "YAML aliases (*%.40s) are not supported: write the value out", n.Value)
		return false
	}
	return true
}

func (c *converter) message(n *yaml.Node, d protoreflect.MessageDescriptor, path string) any {
	if d.FullName() == "google.protobuf.Duration" {
		return c.duration(n, path)
	}
	out := make(map[string]any)
	c.entries(n, path, func(key, value *yaml.Node) {
		field := d.Fields().ByJSONName(key.Value)
		if field == nil {
			field = d.Fields().ByTextName(key.Value)
		}
		if field == nil {
			c.fault(key, join(path, fmt.Sprintf("%.80s", key.Value)), "no such field: there are %s", strings.Join(fieldNames(d), ", "))
			return
		}
		name := field.JSONName()
		if _, twice := out[name]; twice {
			c.fault(key, join(path, name), "is listed twice")
			return
		}
		if isNull(value) {
			return
		}
		if other := field.ContainingOneof(); other != nil && !other.IsSynthetic() {
			for i := range other.Fields().Len() {
				sibling := other.Fields().Get(i).JSONName()
				if _, there := out[sibling]; there {
					c.fault(key, join(path, name), "can't be beside %s: want one of them", sibling)
				}
			}
		}
		out[name] = c.field(value, field, join(path, name))
	})
	return out
}

// entries calls f for each pair of a mapping.
func (c *converter) entries(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	if !c.count(n, path) {
		return
	}
	if n.Kind != yaml.MappingNode {
		c.fault(n, path, "%s where fields are wanted", describe(n))
		return
	}
	for i := 0; i+1 < len(n.Content) && !c.over(); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			c.fault(key, path, "%s where a field's name is wanted", describe(key))
			continue
		}
		f(key, n.Content[i+1])
	}
}

func (c *converter) field(n *yaml.Node, f protoreflect.FieldDescriptor, path string) any {
	switch {
	case f.IsMap():
		return c.dictionary(n, f.MapValue(), path)
	case f.IsList():
		return c.list(n, f, path)
	}
	return c.single(n, f, path)
}

func (c *converter) dictionary(n *yaml.Node, value protoreflect.FieldDescriptor, path string) any {
	out := make(map[string]any)
	c.entries(n, path, func(key, node *yaml.Node) {
		if _, twice := out[key.Value]; twice {
			c.fault(key, mapField(path, key.Value), "is listed twice")
			return
		}
		out[key.Value] = c.single(node, value, mapField(path, key.Value))
	})
	return out
}

func (c *converter) list(n *yaml.Node, f protoreflect.FieldDescriptor, path string) any {
	if !c.count(n, path) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return c.fault(n, path, "%s where a list is wanted", describe(n))
	}
	out := make([]any, len(n.Content))
	for i, element := range n.Content {
		if c.over() {
			return nil
		}
		out[i] = c.single(element, f, fmt.Sprintf("%s[%d]", path, i))
	}
	return out
}

func (c *converter) single(n *yaml.Node, f protoreflect.FieldDescriptor, path string) any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return c.message(n, f.Message(), path)
	case protoreflect.BoolKind:
		return c.boolean(n, path)
	case protoreflect.Uint32Kind:
		return c.number(n, path)
	case protoreflect.Int64Kind:
		return c.signed(n, path)
	case protoreflect.StringKind:
		return c.text(n, path)
	}
	return c.fault(n, path, "fields of type %s can't be read", f.Kind())
}

// scalar says whether a node is one.
func (c *converter) scalar(n *yaml.Node, path, wanted string) bool {
	if !c.count(n, path) {
		return false
	}
	if n.Kind != yaml.ScalarNode || isNull(n) {
		c.fault(n, path, "%s where %s is wanted", describe(n), wanted)
		return false
	}
	return true
}

// text takes numbers and words like "on" as they are written: "size: 1024" is
// as good as "size: '1024'".
func (c *converter) text(n *yaml.Node, path string) any {
	if !c.scalar(n, path, "text") {
		return nil
	}
	if n.Tag == "!!binary" {
		return c.fault(n, path, "binary data where text is wanted")
	}
	return n.Value
}

// duration takes Go's and Kubernetes' way of writing them; protojson knows
// only seconds.
func (c *converter) duration(n *yaml.Node, path string) any {
	if !c.scalar(n, path, "a duration such as 30s") {
		return nil
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil {
		return c.fault(n, path, "%.40q is not a duration: want a number with s, m or h after it, such as 30s or 2m", n.Value)
	}
	encoded, err := protojson.Marshal(durationpb.New(d))
	if err != nil {
		return c.fault(n, path, "%v", err)
	}
	return json.RawMessage(encoded)
}

func (c *converter) boolean(n *yaml.Node, path string) any {
	if !c.scalar(n, path, "true or false") {
		return nil
	}
	if n.Value != "true" && n.Value != "false" || n.Tag != "!!bool" {
		return c.fault(n, path, "%.40q where true or false is wanted", n.Value)
	}
	return n.Value == "true"
}

func (c *converter) number(n *yaml.Node, path string) any {
	if !c.scalar(n, path, "a number") {
		return nil
	}
	number, err := strconv.ParseUint(n.Value, 10, 32)
	if err != nil || n.Tag != "!!int" {
		return c.fault(n, path, "%.40q where a whole number from 0 to %d is wanted", n.Value, uint32(math.MaxUint32))
	}
	return json.Number(strconv.FormatUint(number, 10))
}

// signed is a whole number that may be negative.
func (c *converter) signed(n *yaml.Node, path string) any {
	if !c.scalar(n, path, "a number") {
		return nil
	}
	number, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || n.Tag != "!!int" {
		return c.fault(n, path, "%.40q where a whole number is wanted", n.Value)
	}
	return json.Number(strconv.FormatInt(number, 10))
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
