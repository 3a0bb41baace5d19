package spec

import (
	"errors"
	"fmt"
	"strings"
)

// FieldError is a fault in one field.
type FieldError struct {
	// Field is the path of the field as a user writes it: "disks[1].serial".
	Field string
	// Message says what was found and what is wanted.
	Message string
}

func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
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

// Add appends a fault.
func (e *FieldErrors) Add(field, format string, args ...any) {
	*e = append(*e, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}
