package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
)

// Causes of cancelled operations.
var (
	errAborted = errors.New("aborted")
	errGone    = errors.New("the agent's connection has ended")
	errKilled  = errors.New("the VM was killed")
	errSignal  = errors.New("the shim got a signal to end")
)

func fault(code shim.Code, field, format string, args ...any) *shim.Error {
	return &shim.Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

func precondition(format string, args ...any) *shim.Error {
	return fault(shim.CodePrecondition, "", format, args...)
}

// invalid is about a field of the plan's specification.
func invalid(field string, err error) *shim.Error {
	return fault(shim.CodeInvalid, field, "%v", err)
}

// asError classifies an error for the protocol.
func asError(err error) *shim.Error {
	var known *shim.Error
	if errors.As(err, &known) {
		if known.Message == err.Error() || known.Error() == err.Error() {
			return known
		}
		return &shim.Error{Code: known.Code, Field: known.Field, Message: err.Error()}
	}
	return &shim.Error{Code: codeOf(err), Message: err.Error()}
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
	case errors.Is(err, errAborted), errors.Is(err, errGone), errors.Is(err, errKilled), errors.Is(err, errSignal), errors.Is(err, context.Canceled):
		return shim.CodeCancelled
	}
	for _, world := range []error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EPERM, unix.EROFS} {
		if errors.Is(err, world) { // the administrator's to mend, not ours
			return shim.CodePrecondition
		}
	}
	return shim.CodeInternal
}
