// Package fault has the agent's errors, each with the code that a caller of the API gets,
// and bounds on what they quote of shims, VMMs and pods. It must not know the
// packages that use it (agent/vm, agent/place, agent/podvm). Start reading at ToStatus, the
// one place where errors become gRPC statuses.
package fault

import (
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/grpc/codes"
)

// Error is an error with the code that a caller gets.
type Error struct {
	Code codes.Code
	Err  error
}

// Error returns the message of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error with a code. Arguments may be parts of the fault (contract.Errorf); %w works.
func Errorf(code codes.Code, format string, args ...any) error {
	return &Error{code, contract.Errorf(format, args...)}
}

// Invalid is a fault in one field. Arguments may be parts of it.
func Invalid(field, format string, args ...any) error {
	var faults spec.FieldErrors
	faults.Add(field, format, args...)
	return faults
}

// InField is a fault in one field that is not the specification's alone: it has a code of its own.
func InField(code codes.Code, field, format string, args ...any) error {
	return &Error{code, contract.InField(field, contract.Errorf(format, args...))}
}

// MaxMessage bounds what is kept of a message, in bytes: parts of it may be a
// shim's or a VMM's words.
const MaxMessage = 8 << 10

// MaxLogged bounds what the log has of an error or a VM's state, in bytes: it may be a
// pod's words. Record and pod get more of it (MaxMessage).
const MaxLogged = 512

// Clip cuts a text that has more than max bytes, between characters. The rest is not kept
// in memory.
func Clip(text string, max int) string {
	if len(text) <= max {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:max], ""))
}
