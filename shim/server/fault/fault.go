// Package fault makes and classifies the errors that the shim answers with.
package fault

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// Causes of cancelled operations.
var (
	ErrAborted = errors.New("aborted")
	ErrGone    = errors.New("the agent's connection has ended")
	ErrKilled  = errors.New("the VM was killed")
	ErrSignal  = errors.New("the shim got a signal to end")
)

// New is an error with a code, about a field of the request or of the plan's specification; empty: about none.
// Arguments may be parts of the fault (contract.Errorf).
func New(code shim.Code, field, format string, args ...any) *shim.Error {
	return shim.NewError(code, field, contract.Errorf(format, args...))
}

// Saying adds to an error what was said of the same.
func Saying(known *shim.Error, said error) *shim.Error {
	parts, more := slices.Clone(known.Faults()), contract.FaultsOf(said)
	parts[len(parts)-1].Text += ": " + more[0].Text
	return &shim.Error{Code: known.Code, Field: known.Field, Message: known.Message + ": " + said.Error(), Parts: parts}
}

// Precondition: not in this state.
func Precondition(format string, args ...any) *shim.Error {
	return New(shim.CodePrecondition, "", format, args...)
}

// Invalid is about a field of the plan's specification.
func Invalid(field string, err error) *shim.Error {
	return New(shim.CodeInvalid, field, "%v", err)
}

// Of classifies an error for the protocol.
func Of(err error) *shim.Error {
	var known *shim.Error
	if errors.As(err, &known) {
		if known.Message == err.Error() || known.Error() == err.Error() {
			return known
		}
		return &shim.Error{Code: known.Code, Field: known.Field, Message: err.Error(), Parts: contract.FaultsOf(err)}
	}
	return &shim.Error{Code: codeOf(err), Message: err.Error(), Parts: contract.FaultsOf(err)}
}

func codeOf(err error) shim.Code {
	var (
		space   *memory.SpaceError
		damaged *memory.DamagedError
		format  *memory.FormatError
		image   *disk.Fault
	)
	switch {
	case errors.As(err, &space), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return shim.CodeSpace
	case errors.Is(err, memory.ErrInUse), errors.Is(err, memory.ErrNotEmpty), errors.Is(err, memory.ErrNewerFormat):
		return shim.CodePrecondition
	case errors.As(err, &damaged), errors.As(err, &format):
		return shim.CodeDamaged
	case errors.As(err, &image), errors.Is(err, memory.ErrNotImage):
		return shim.CodeInvalid
	case errors.Is(err, ErrAborted), errors.Is(err, ErrGone), errors.Is(err, ErrKilled), errors.Is(err, ErrSignal), errors.Is(err, context.Canceled):
		return shim.CodeCancelled
	}
	for _, world := range []error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EPERM, unix.EROFS} {
		if errors.Is(err, world) { // the administrator's to mend, not ours
			return shim.CodePrecondition
		}
	}
	return shim.CodeInternal
}
