package chapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

var (
	// ErrNotCreated means that the VMM holds no VM: none was created or restored,
	// or it was deleted. Versions before v53 say so with an [*Error] of status 500
	// only.
	ErrNotCreated = errors.New("no VM has been created in this VMM")

	// ErrBusy means that the VMM can't do it now and that it may later: vCPUs that
	// were removed have not left yet, or there are too many connections.
	ErrBusy = errors.New("the VMM is busy: try again later")

	// ErrUnknownCall means that this VMM has no such call: it is too old, or was
	// built without it.
	ErrUnknownCall = errors.New("this cloud-hypervisor has no such call")

	// ErrDisconnected means that nobody listens on the API's socket or that the
	// VMM closed the connection before its reply was whole. It wraps the cause, such
	// as io.EOF, syscall.ECONNREFUSED or syscall.ECONNRESET.
	ErrDisconnected = errors.New("the VMM has hung up")

	// ErrNotSent means that the VMM didn't have the whole request, so that it was not
	// carried out and will not be.
	ErrNotSent = errors.New("request not sent")

	// ErrOutcomeUnknown means that the request was sent and no reply was had.
	ErrOutcomeUnknown = errors.New("whether it was carried out is unknown")

	// ErrProtocol means that what came is not what cloud-hypervisor sends.
	ErrProtocol = errors.New("not the cloud-hypervisor API")

	// ErrTooLong is an ErrProtocol: a reply or an event went beyond its bound.
	ErrTooLong = fmt.Errorf("%w: message too long", ErrProtocol)
)

// Bounds on what is kept of an error's causes: each is one line to a person.
const (
	maxCauses = 16
	maxCause  = 1 << 10 // bytes
)

// Error is the VMM's refusal: the request arrived and was not carried out, or not
// to its end.
type Error struct {
	// Call is the endpoint's name, such as "vm.boot".
	Call string
	// Status is the HTTP status: 400 for a request that it can't read, 404 for no
	// VM, 429 for not now, 500 for all else.
	Status int
	// Causes are the VMM's words, the outermost first; each is the cause of the one
	// before it. They are for people and change between versions.
	Causes []string
}

// Error names the call, the causes and the status.
func (e *Error) Error() string {
	words := strings.Join(e.Causes, ": ")
	if words == "" {
		words = "refused without a word"
	}
	return fmt.Sprintf("cloud-hypervisor %s: %s (HTTP status %d)", e.Call, words, e.Status)
}

// Is makes errors.Is tell the statuses that programs decide by.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotCreated:
		return e.Status == statusNotFound && !e.unknownCall()
	case ErrUnknownCall:
		return e.Status == statusNotFound && e.unknownCall()
	case ErrBusy:
		return e.Status == statusTooManyRequests || e.Status == statusUnavailable
	}
	return false
}

// unknownCall: a path that the server doesn't know has the same status as a VM
// that isn't there. Only the latter has a chain of causes.
func (e *Error) unknownCall() bool {
	return len(e.Causes) == 1 && e.Causes[0] == "Not Found"
}

func refusal(call string, status int, body []byte) *Error {
	e := &Error{Call: call, Status: status}
	for _, cause := range causes(body) {
		if len(e.Causes) == maxCauses {
			break
		}
		if cause = printable(cause); cause != "" {
			e.Causes = append(e.Causes, cause)
		}
	}
	return e
}

// causes reads the body of a refusal: an array of strings from the API, and from
// the HTTP server below it an object with one sentence, which need not be valid JSON.
func causes(body []byte) []string {
	var chain []string
	if json.Unmarshal(body, &chain) == nil {
		return chain
	}
	var object struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &object) == nil && object.Error != "" {
		return []string{object.Error}
	}
	return []string{string(body)}
}

// printable makes one line of what the VMM says, as it goes to logs and terminals.
func printable(s string) string {
	cut := len(s) > maxCause
	s = strings.ToValidUTF8(s[:min(len(s), maxCause)], "")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) // of the spaces only U+0020 is
	}), " ")
	s = strings.TrimSpace(s)
	if cut {
		s += "..."
	}
	return s
}

// Statuses of RFC 9110 and RFC 6585.
const (
	statusNoContent       = 204
	statusNotFound        = 404
	statusTooManyRequests = 429
	statusUnavailable     = 503
)
