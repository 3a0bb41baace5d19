package spec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmlet/vmlet/contract"
)

// FieldError is a fault in one field.
type FieldError struct {
	// Field is the path of the field as a user writes it: "disks[1].serial".
	Field string
	// Message says what was found and what is wanted.
	Message string
	// UseVMM is one that can do what this one can't; empty: none that is there.
	UseVMM string
	// Advice is for who works on the node: a command, or a flag of vmlet's.
	Advice string
}

// Fault is the error in the parts that programs of both halves exchange.
func (e FieldError) Fault() contract.Fault {
	return contract.Fault{Field: e.Field, Text: e.Message, UseVMM: e.UseVMM, Advice: e.Advice}
}

func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Text()
	}
	return e.Field + ": " + e.Text()
}

// Text is all that is to be said but for the field.
func (e FieldError) Text() string {
	text := e.Message
	if e.Advice != "" {
		text += " (" + e.Advice + ")"
	}
	if e.UseVMM != "" {
		text += ", or use vmm: " + e.UseVMM
	}
	return text
}

// FieldErrors are all the faults that were found, in the order of the fields.
// It is an error only if it is not empty: return its Err.
type FieldErrors []FieldError

func (e FieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns nil if there are no faults.
func (e FieldErrors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Take appends the faults that an error is; one that is none has no field. Nil is
// nothing.
func (e *FieldErrors) Take(err error) {
	var faults FieldErrors
	switch {
	case errors.As(err, &faults):
		*e = append(*e, faults...)
	case err != nil:
		e.Add("", "%v", err)
	}
}

// Advise leaves out the advice to use another VMM, in these faults themselves, where that
// is not there.
func (e FieldErrors) Advise(there func(vmm string) bool) {
	for i := range e {
		if e[i].UseVMM != "" && !there(e[i].UseVMM) {
			e[i].UseVMM = ""
		}
	}
}

// Add appends a fault.
func (e *FieldErrors) Add(field, format string, args ...any) {
	*e = append(*e, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}
