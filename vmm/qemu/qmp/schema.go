package qmp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Schema is what one QEMU's query-qmp-schema tells of its commands, events and
// their types. Ask it, not the version, whether QEMU can do something. The names
// of types are not in it: QEMU replaces them by numbers that differ from build to
// build, so a type is reached from a command or an event.
//
// A Schema doesn't change and may be used from any goroutine. It takes about
// 0.5 MiB: ask it what you need to know and let it go.
type Schema struct {
	commands map[string]*Type
	events   map[string]*Type
	types    map[string]*Type
}

// Meta-types that this package knows how to walk through.
const (
	MetaBuiltin   = "builtin"
	MetaEnum      = "enum"
	MetaArray     = "array"
	MetaObject    = "object"
	MetaAlternate = "alternate"
	MetaCommand   = "command"
	MetaEvent     = "event"
)

// Type is one entity of the schema. A nil *Type is one that doesn't exist: all its
// methods may be called and find nothing, so that lookups can be chained:
//
//	schema.CommandArguments("object-add").Variant("memory-backend-file").Member("rom") != nil
type Type struct {
	schema *Schema
	entity entity
}

// entity is SchemaInfo of QEMU's qapi/introspect.json, as far as it is used here.
type entity struct {
	Name        string            `json:"name"`
	MetaType    string            `json:"meta-type"`
	JSONType    string            `json:"json-type"`
	ArgType     string            `json:"arg-type"`
	RetType     string            `json:"ret-type"`
	ElementType string            `json:"element-type"`
	Tag         string            `json:"tag"`
	Members     []member          `json:"members"`
	Values      []string          `json:"values"` // of an enum; QEMU before 6.2 has these only
	Variants    []variant         `json:"variants"`
	Features    []json.RawMessage `json:"features"`
	AllowOOB    bool              `json:"allow-oob"`
}

// UnmarshalJSON keeps no more than the name of what has a meta-type unknown here:
// its members may have any form.
func (e *entity) UnmarshalJSON(data []byte) error {
	var head struct {
		Name     string `json:"name"`
		MetaType string `json:"meta-type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch head.MetaType {
	case MetaBuiltin, MetaEnum, MetaArray, MetaObject, MetaAlternate, MetaCommand, MetaEvent:
		type plain entity // without this method
		return json.Unmarshal(data, (*plain)(e))
	}
	*e = entity{Name: head.Name, MetaType: head.MetaType}
	return nil
}

type member struct {
	Name    string          `json:"name"`
	Type    string          `json:"type"`
	Default json.RawMessage `json:"default"` // present, as null, if the member is optional
}

type variant struct {
	Case string `json:"case"`
	Type string `json:"type"`
}

// Schema asks QEMU for its schema. The reply has 200 to 300 KiB, and to read it
// takes some 4 MiB for a moment.
func (c *Client) Schema(ctx context.Context) (*Schema, error) {
	var raw json.RawMessage
	if err := c.Execute(ctx, "query-qmp-schema", nil, &raw); err != nil {
		return nil, err
	}
	return ParseSchema(raw)
}

// ParseSchema reads a schema from query-qmp-schema's reply, kept from earlier perhaps.
func ParseSchema(reply []byte) (*Schema, error) {
	var entities []entity
	if err := json.Unmarshal(reply, &entities); err != nil {
		return nil, fmt.Errorf("QMP schema: %w", err)
	}
	s := &Schema{
		commands: make(map[string]*Type),
		events:   make(map[string]*Type),
		types:    make(map[string]*Type),
	}
	for _, e := range entities {
		t := &Type{schema: s, entity: e}
		// Names are unique within each of the three only.
		switch e.MetaType {
		case MetaCommand:
			s.commands[e.Name] = t
		case MetaEvent:
			s.events[e.Name] = t
		default:
			s.types[e.Name] = t
		}
	}
	return s, nil
}

// HasCommand tells whether QEMU has the command.
func (s *Schema) HasCommand(name string) bool { return s.commands[name] != nil }

// HasEvent tells whether QEMU has the event.
func (s *Schema) HasEvent(name string) bool { return s.events[name] != nil }

// HasArgument tells whether the command has an argument, or, with more names, that
// argument a member of that name, and so on: HasArgument("migrate", "channels",
// "addr", "transport"). See [Type.Member] for what counts.
func (s *Schema) HasArgument(command, argument string, members ...string) bool {
	t := s.CommandArguments(command).Member(argument)
	for _, name := range members {
		t = t.Member(name)
	}
	return t != nil
}

// Command returns the command's own entry, nil if there is none.
func (s *Schema) Command(name string) *Type { return s.commands[name] }

// CommandArguments returns the type of the command's arguments, nil if there is no
// such command. That of a command without arguments has no members.
func (s *Schema) CommandArguments(command string) *Type {
	if t := s.commands[command]; t != nil {
		return s.types[t.entity.ArgType]
	}
	return nil
}

// CommandReply returns the type of the command's reply, nil if there is no such command.
func (s *Schema) CommandReply(command string) *Type {
	if t := s.commands[command]; t != nil {
		return s.types[t.entity.RetType]
	}
	return nil
}

// EventData returns the type of the event's data, nil if there is no such event.
func (s *Schema) EventData(event string) *Type {
	if t := s.events[event]; t != nil {
		return s.types[t.entity.ArgType]
	}
	return nil
}

// Meta returns the entity's meta-type, empty for nil. One that is none of the
// constants comes from a newer QEMU.
func (t *Type) Meta() string {
	if t == nil {
		return ""
	}
	return t.entity.MetaType
}

// Member returns the type of an object's member. It looks among the members that
// the object always has, then among those of its variants, in QEMU's order; to ask
// one variant only use Variant. Arrays are looked through to their elements, and
// alternates to their objects.
func (t *Type) Member(name string) *Type {
	for _, o := range t.objects() {
		if found := o.ownMember(name); found != nil {
			return found
		}
		for _, v := range o.entity.Variants {
			if found := o.schema.types[v.Type].ownMember(name); found != nil {
				return found
			}
		}
	}
	return nil
}

// Optional tells whether the object, variants not counted, has the member and
// may go without it.
func (t *Type) Optional(name string) bool {
	for _, o := range t.objects() {
		for _, m := range o.entity.Members {
			if m.Name == name {
				return m.Default != nil
			}
		}
	}
	return false
}

// Members returns the names of the members that an object always has, those of
// its variants left out.
func (t *Type) Members() []string {
	var names []string
	for _, o := range t.objects() {
		for _, m := range o.entity.Members {
			names = append(names, m.Name)
		}
	}
	return names
}

// Variant returns the object that holds the further members which an object has
// when its tag has the value, nil if there is no such case.
func (t *Type) Variant(value string) *Type {
	for _, o := range t.objects() {
		for _, v := range o.entity.Variants {
			if v.Case == value {
				return o.schema.types[v.Type]
			}
		}
	}
	return nil
}

// Values returns an enum's values, and those of the enums that an array or an
// alternate is made of.
func (t *Type) Values() []string {
	var values []string
	for _, e := range t.resolve(MetaEnum) {
		if e.entity.Members == nil {
			values = append(values, e.entity.Values...)
		}
		for _, m := range e.entity.Members {
			values = append(values, m.Name)
		}
	}
	return values
}

// HasValue tells whether Values has the value.
func (t *Type) HasValue(value string) bool { return slices.Contains(t.Values(), value) }

// HasFeature tells whether QEMU marks a command, an event or a type with the
// feature, such as "deprecated".
func (t *Type) HasFeature(name string) bool {
	if t == nil {
		return false
	}
	for _, raw := range t.entity.Features {
		var feature string
		if json.Unmarshal(raw, &feature) == nil && feature == name {
			return true
		}
	}
	return false
}

// ownMember looks at an object's members, not at its variants'.
func (t *Type) ownMember(name string) *Type {
	if t == nil {
		return nil
	}
	for _, m := range t.entity.Members {
		if m.Name == name {
			return t.schema.types[m.Type]
		}
	}
	return nil
}

func (t *Type) objects() []*Type { return t.resolve(MetaObject) }

// resolve returns t if it is of the meta-type, or those that t's arrays and
// alternates lead to. A schema may come from a hostile peer and lead in circles:
// each type is visited once.
func (t *Type) resolve(meta string) []*Type {
	var found []*Type
	seen := map[*Type]bool{nil: true}
	next := []*Type{t}
	for len(next) > 0 {
		t, next = next[0], next[1:]
		if seen[t] {
			continue
		}
		seen[t] = true
		switch t.entity.MetaType {
		case meta:
			found = append(found, t)
		case MetaArray:
			next = append(next, t.schema.types[t.entity.ElementType])
		case MetaAlternate:
			for _, m := range t.entity.Members {
				next = append(next, t.schema.types[m.Type])
			}
		}
	}
	return found
}
