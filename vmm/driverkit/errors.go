package driverkit

import (
	"context"
	"errors"
	"io/fs"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// codes are the errors on which the other side acts.
func codes() []struct {
	err  error
	code wire.Code
} {
	return []struct {
		err  error
		code wire.Code
	}{
		{control.ErrMonitorClosed, wire.CodeVMMClosed},
		{control.ErrNoGuestAgent, wire.CodeNoGuestAgent}, {vmm.ErrNoGuestAgent, wire.CodeNoGuestAgent},
		{control.ErrGuestKeeps, wire.CodeGuestKeeps}, {vmm.ErrGuestKeeps, wire.CodeGuestKeeps},
		{vmm.ErrGuestCannot, wire.CodeGuestCannot}, {vmm.ErrNoDisplay, wire.CodeNoDisplay},
		{fs.ErrNotExist, wire.CodeNotFound}, {errors.ErrUnsupported, wire.CodeUnsupported},
		{context.DeadlineExceeded, wire.CodeDeadline}, {context.Canceled, wire.CodeCanceled},
	}
}

// encoded gives an error the code that the other side acts on.
func encoded(err error) error {
	var done *wire.Error
	var faults spec.FieldErrors
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		return err
	case errors.As(err, &faults):
		return &wire.Error{Code: wire.CodeInvalid, Message: err.Error(), Faults: encodedFaults(faults)}
	}
	return &wire.Error{Code: codeOf(err), Message: err.Error()}
}

func codeOf(err error) wire.Code {
	for _, c := range codes() {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return wire.CodeInternal
}

func encodedFaults(faults spec.FieldErrors) []wire.Fault {
	return wire.FaultsOf(faults.Faults())
}
