package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/vmlet/vmlet/internal/strictyaml"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// MaxSize is the most bytes that Parse reads. Cloud-init's user-data is the
// only part that can be long, and it is bounded to a fraction of this.
const MaxSize = 1 << 20

// SyntaxError says where in a file a specification can't be read.
type SyntaxError struct {
	// Filename as given to Parse.
	Filename string
	// Line is counted from 1; 0: unknown.
	Line    int
	Message string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Filename, e.Message)
	}
	return fmt.Sprintf("%s:%d: %s", e.Filename, e.Line, e.Message)
}

// Parse reads one specification, in YAML or JSON (which is YAML too). It is
// strict: unknown and repeated fields are refused, as is a second document.
// The filename is for error messages. The error is a *SyntaxError, or joins one for each
// fault, in the order of the file.
// What is read is not valid for that: see Validate.
func Parse(data []byte, filename string) (*specv1.VirtualMachineSpec, error) {
	if len(data) > MaxSize {
		return nil, &SyntaxError{Filename: filename, Message: fmt.Sprintf("%d bytes; a specification has at most %d", len(data), MaxSize)}
	}
	root, err := document(data, filename)
	if err != nil {
		return nil, err
	}
	message := new(specv1.VirtualMachineSpec)
	c := converter{filename: filename}
	value := c.message(root, message.ProtoReflect().Descriptor(), "")
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, &SyntaxError{Filename: filename, Line: root.Line, Message: err.Error()}
	}
	// Every field has been checked against its descriptor, so what is left for
	// this to refuse is invalid UTF-8 and the like.
	if err := protojson.Unmarshal(encoded, message); err != nil {
		return nil, &SyntaxError{Filename: filename, Line: root.Line, Message: err.Error()}
	}
	return message, nil
}

// document returns the root of the only document in data.
func document(data []byte, filename string) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
		return nil, &SyntaxError{Filename: filename, Message: "empty: want the specification of a virtual machine"}
	} else if err != nil {
		return nil, &SyntaxError{Filename: filename, Message: err.Error()}
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return nil, &SyntaxError{Filename: filename, Line: second.Line, Message: "a second document: want one virtual machine in a file"}
	} else if !errors.Is(err, io.EOF) {
		return nil, &SyntaxError{Filename: filename, Message: err.Error()}
	}
	if len(node.Content) != 1 {
		return nil, &SyntaxError{Filename: filename, Message: "empty: want the specification of a virtual machine"}
	}
	return node.Content[0], nil
}

// Marshal returns the specification as YAML: fields under the names that users
// write, in alphabetical order, those that are not set left out. The same
// specification always gives the same bytes.
func Marshal(spec *specv1.VirtualMachineSpec) ([]byte, error) {
	encoded, err := protojson.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("writing a specification: %w", err)
	}
	out, err := strictyaml.FromJSON(encoded)
	if err != nil {
		return nil, fmt.Errorf("writing a specification: %w", err)
	}
	return out, nil
}

// MarshalJSON returns the specification as compact JSON that Parse reads, the
// same bytes for the same specification (protojson's own output deliberately
// varies in white space).
func MarshalJSON(spec *specv1.VirtualMachineSpec) ([]byte, error) {
	encoded, err := protojson.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("writing a specification: %w", err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, encoded); err != nil {
		return nil, fmt.Errorf("writing a specification: %w", err)
	}
	return out.Bytes(), nil
}

func clone(spec *specv1.VirtualMachineSpec) *specv1.VirtualMachineSpec {
	if spec == nil {
		return new(specv1.VirtualMachineSpec)
	}
	return proto.Clone(spec).(*specv1.VirtualMachineSpec)
}
