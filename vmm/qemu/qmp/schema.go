package qmp

import (
	"context"
	"encoding/json"
	"fmt"
)

// Schema is what one QEMU's query-qmp-schema tells of its commands' arguments. Ask it,
// not the version, whether QEMU can do something. The names of types are not in it: QEMU
// replaces them by numbers that differ from build to build, so a type is reached from a
// command.
//
// A Schema doesn't change and may be used from any goroutine. It takes about
// 0.5 MiB: ask it what you need to know and let it go.
type Schema struct {
	arguments map[string]string // the type of a command's, by its name
	types     map[string]*entity
}

// Meta-types that lookups walk through.
const (
	metaArray     = "array"
	metaObject    = "object"
	metaAlternate = "alternate"
	metaCommand   = "command"
	metaEvent     = "event"
)

// entity is SchemaInfo of QEMU's qapi/introspect.json, as far as it is used here.
type entity struct {
	Name        string    `json:"name"`
	MetaType    string    `json:"meta-type"`
	ArgType     string    `json:"arg-type"`
	ElementType string    `json:"element-type"`
	Members     []member  `json:"members"`
	Variants    []variant `json:"variants"`
}

// UnmarshalJSON keeps no more than the name of what lookups don't walk through: its
// members may have any form.
func (e *entity) UnmarshalJSON(data []byte) error {
	var head struct {
		Name     string `json:"name"`
		MetaType string `json:"meta-type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch head.MetaType {
	case metaArray, metaObject, metaAlternate, metaCommand:
		type plain entity // without this method
		return json.Unmarshal(data, (*plain)(e))
	}
	*e = entity{Name: head.Name, MetaType: head.MetaType}
	return nil
}

type member struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

type variant struct {
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

// ParseSchema reads a schema from query-qmp-schema's reply.
func ParseSchema(reply []byte) (*Schema, error) {
	var entities []entity
	if err := json.Unmarshal(reply, &entities); err != nil {
		return nil, fmt.Errorf("QMP schema: %w", err)
	}
	s := &Schema{arguments: make(map[string]string), types: make(map[string]*entity)}
	for i := range entities {
		// A command, an event and a type may have the same name.
		switch e := &entities[i]; e.MetaType {
		case metaCommand:
			s.arguments[e.Name] = e.ArgType
		case metaEvent:
		default:
			s.types[e.Name] = e
		}
	}
	return s, nil
}

// HasArgument tells whether the command has an argument, or, with more names, that
// argument a member of that name, and so on: HasArgument("migrate", "channels",
// "addr", "transport"). Members count that an object always has, and those of its
// variants. Arrays are looked through to their elements, alternates to their objects.
func (s *Schema) HasArgument(command, argument string, members ...string) bool {
	t := s.member(s.types[s.arguments[command]], argument)
	for _, name := range members {
		t = s.member(t, name)
	}
	return t != nil
}

// member is the type of a member; nil: there is none.
func (s *Schema) member(t *entity, name string) *entity {
	for _, o := range s.objects(t) {
		if found := s.ownMember(o, name); found != nil {
			return found
		}
		for _, v := range o.Variants {
			if found := s.ownMember(s.types[v.Type], name); found != nil {
				return found
			}
		}
	}
	return nil
}

// ownMember looks at an object's members, not at its variants'.
func (s *Schema) ownMember(t *entity, name string) *entity {
	if t == nil {
		return nil
	}
	for _, m := range t.Members {
		if m.Name == name {
			return s.types[m.Type]
		}
	}
	return nil
}

// objects returns t if it is one, or those that t's arrays and alternates lead to. A
// schema may come from a hostile peer and lead in circles: each type is visited once.
func (s *Schema) objects(t *entity) []*entity {
	var found []*entity
	seen := map[*entity]bool{nil: true}
	next := []*entity{t}
	for len(next) > 0 {
		t, next = next[0], next[1:]
		if seen[t] {
			continue
		}
		seen[t] = true
		switch t.MetaType {
		case metaObject:
			found = append(found, t)
		case metaArray:
			next = append(next, s.types[t.ElementType])
		case metaAlternate:
			for _, m := range t.Members {
				next = append(next, s.types[m.Type])
			}
		}
	}
	return found
}
