package spec

import (
	"errors"
	"strings"

	"github.com/vmlet/vmlet/contract"
)

// FieldError is a fault in one field.
type FieldError struct {
	// Field is the path of the field as a user writes it: "disks[1].serial".
	Field string
	// Reason is a word for programs, one of contract's; mostly empty.
	Reason string
	// Object is the file or the host's device that it is about, as Message names it.
	Object string
	// Message says what was found and what is wanted.
	Message string
	// UseVMM is one that can do what this one can't; empty: none that is there.
	UseVMM string
	// Advice is for who works on the node: a command, or a flag of vmlet's.
	Advice string
	// OtherVM is another VM that has to do with it, which Message names as "vm NAME".
	OtherVM string
	// Fields are further fields, as Message names them.
	Fields []string
}

// Fault is the error in the parts that programs of both halves exchange.
func (e FieldError) Fault() contract.Fault {
	return contract.Fault{
		Reason: e.Reason, Field: e.Field, Object: e.Object, Text: e.Message, UseVMM: e.UseVMM, Advice: e.Advice, OtherVM: e.OtherVM, Fields: e.Fields,
	}
}

// FieldErrorOf is a fault as an error in a field.
func FieldErrorOf(f contract.Fault) FieldError {
	return FieldError{
		Reason: f.Reason, Field: f.Field, Object: f.Object, Message: f.Text, UseVMM: f.UseVMM, Advice: f.Advice, OtherVM: f.OtherVM, Fields: f.Fields,
	}
}

func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Text()
	}
	return e.Field + ": " + e.Text()
}

// Text is all that is to be said but for the field.
func (e FieldError) Text() string {
	text := e.Message + contract.Advice(e.Advice).String()
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

// Faults are the errors in parts (contract.FaultsOf).
func (e FieldErrors) Faults() []contract.Fault {
	all := make([]contract.Fault, len(e))
	for i, fault := range e {
		all[i] = fault.Fault()
	}
	return all
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

// Add appends a fault. Arguments may be parts of it (contract.Errorf); its advice stands at the end.
func (e *FieldErrors) Add(field, format string, args ...any) {
	err := contract.Errorf(format, args...)
	f := contract.Fault{Text: err.Error()}
	if parts := contract.FaultsOf(err); len(parts) == 1 {
		f = parts[0]
	}
	if f.Field != "" { // of an error that it quotes
		f.Fields, f.Text = append(f.Fields, f.Field), f.Field+": "+f.Text
	}
	f.Field = field
	*e = append(*e, FieldErrorOf(f))
}
