// Package output writes what the client shows: tables for people, ProtoJSON
// and YAML for programs, bare names for shell loops.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/internal/strictyaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Format is a way to write things, as the flag -o names it.
type Format string

const (
	Table Format = "table"
	Wide  Format = "wide" // a table with more columns
	JSON  Format = "json"
	YAML  Format = "yaml"
	Name  Format = "name" // one name a line
	Tree  Format = "tree" // text, each part under what holds it
	SVG   Format = "svg"  // a picture
)

// Flag is a pflag.Value that takes one of the given formats.
type Flag struct {
	Value   Format
	Allowed []Format
}

// NewFlag returns a flag whose default is the first of the formats.
func NewFlag(allowed ...Format) *Flag { return &Flag{allowed[0], allowed} }

func (f *Flag) String() string { return string(f.Value) }

// Set implements pflag.Value.
func (f *Flag) Set(s string) error {
	if !slices.Contains(f.Allowed, Format(s)) {
		return fmt.Errorf("one of %s is wanted", f.List())
	}
	f.Value = Format(s)
	return nil
}

// Type implements pflag.Value: it is what help shows as the flag's value.
func (f *Flag) Type() string { return "format" }

// List returns the allowed formats, for help.
func (f *Flag) List() string { return strings.Join(f.Names(), ", ") }

// Names returns the allowed formats, for completion.
func (f *Flag) Names() []string {
	var names []string
	for _, a := range f.Allowed {
		names = append(names, string(a))
	}
	return names
}

// Message writes one message as JSON or YAML.
func Message(w io.Writer, format Format, m proto.Message) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	return write(w, format, raw)
}

// Line writes one message as JSON on a line of its own, or as one document of
// a YAML stream.
func Line(w io.Writer, format Format, m proto.Message) error {
	raw, err := compact(m)
	if err != nil {
		return err
	}
	if format == YAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return write(w, YAML, raw)
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// List writes messages as an object with one member, which is there even if
// there are none.
func List[M proto.Message](w io.Writer, format Format, member string, items []M) error {
	list := make([]json.RawMessage, 0, len(items))
	for _, m := range items {
		raw, err := compact(m)
		if err != nil {
			return err
		}
		list = append(list, raw)
	}
	return Document(w, format, map[string]any{member: list})
}

// Document writes any value that encoding/json knows as indented JSON or YAML.
func Document(w io.Writer, format Format, v any) error {
	raw, err := encode(v)
	if err != nil {
		return err
	}
	return write(w, format, raw)
}

// write writes JSON with whatever white space as indented JSON or YAML.
func write(w io.Writer, format Format, raw []byte) error {
	if format == YAML {
		raw, err := strictyaml.FromJSON(raw)
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	}
	var b bytes.Buffer
	b.Grow(2 * len(raw))
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// encode is json.Marshal but leaves <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// compact returns a message's ProtoJSON without white space: protojson puts
// some in at random, so that nobody relies on it.
func compact(m proto.Message) (json.RawMessage, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
