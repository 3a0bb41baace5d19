package fault

import (
	"context"
	"errors"
	"io/fs"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/pairing"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
)

// ToStatus gives an error the code and the details that the API promises.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is {
		return err
	}
	st := status.New(codeOf(err), Clip(err.Error(), MaxMessage)) // parts of it may be a VMM's words
	if details := detailsOf(err); len(details) > 0 {
		if with, err := st.WithDetails(details...); err == nil {
			st = with
		}
	}
	return st.Err()
}

// Code is the code that a caller gets of an error.
func Code(err error) codes.Code { return codeOf(err) }

func codeOf(err error) codes.Code {
	var (
		own        *Error
		fields     spec.FieldErrors
		state      *lifecycle.StateError
		fromShim   *shim.Error
		unknown    *hypervisor.UnknownError
		unusable   *hypervisor.UnusableError
		noVMM      *pairing.UnusableError
		damaged    *memory.DamagedError
		format     *memory.FormatError
		outOfSpace *memory.SpaceError
		notHere    *capabilities.NotHereError
		notAsked   *capabilities.NotAskedError
		isCtx      = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	)
	switch {
	case errors.As(err, &own):
		return own.Code
	case errors.As(err, &fields), errors.As(err, &unknown):
		return codes.InvalidArgument
	case errors.As(err, &notHere):
		return codes.NotFound
	case errors.As(err, &state), errors.As(err, &unusable), errors.As(err, &noVMM), errors.As(err, &notAsked):
		return codes.FailedPrecondition
	case errors.As(err, &fromShim):
		return codeOfShim(fromShim.Code)
	case errors.As(err, &outOfSpace):
		return codes.ResourceExhausted
	case errors.As(err, &damaged):
		return codes.DataLoss
	case errors.Is(err, memory.ErrInUse), errors.Is(err, memory.ErrNotEmpty), errors.Is(err, memory.ErrUnfinished), errors.Is(err, memory.ErrNewerFormat):
		return codes.FailedPrecondition
	case errors.As(err, &format):
		return codes.DataLoss
	case errors.Is(err, memory.ErrNotImage):
		return codes.InvalidArgument
	case errors.Is(err, shim.ErrDisconnected):
		return codes.Unavailable
	case isCtx && errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case isCtx:
		return codes.Canceled
	case errors.Is(err, fs.ErrNotExist):
		return codes.FailedPrecondition
	}
	return codes.Internal
}

func codeOfShim(c shim.Code) codes.Code {
	switch c {
	case shim.CodeInvalid:
		return codes.InvalidArgument
	case shim.CodePrecondition, shim.CodeChangedDisk, shim.CodeVersion:
		return codes.FailedPrecondition
	case shim.CodeSpace:
		return codes.ResourceExhausted
	case shim.CodeDamaged:
		return codes.DataLoss
	case shim.CodeTimeout:
		return codes.DeadlineExceeded
	case shim.CodeBusy:
		return codes.AlreadyExists
	case shim.CodeUnavailable:
		return codes.Unavailable
	case shim.CodeCancelled:
		return codes.Canceled
	}
	return codes.Internal
}

// detailsOf has what is wrong in parts, the fields of an INVALID_ARGUMENT, as older clients know them, and the VM of
// a state that does not fit.
func detailsOf(err error) (details []protoadapt.MessageV1) {
	details = append(details, protoadapt.MessageV1Of(&nodev1.Faults{Faults: Parts(err)}))
	var fields spec.FieldErrors
	if errors.As(err, &fields) {
		bad := new(errdetails.BadRequest)
		for _, f := range fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Field, Description: f.Text()})
		}
		details = append(details, bad)
		return details
	}
	var fromShim *shim.Error
	if errors.As(err, &fromShim) && fromShim.Field != "" {
		return append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: fromShim.Field, Description: fromShim.Message},
		}})
	}
	var state *lifecycle.StateError
	if errors.As(err, &state) {
		details = append(details, &errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
			{Type: "STATE", Subject: state.Name, Description: lifecycle.Name(state.State)},
		}})
	}
	return details
}
