package subresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const (
	// maxBody bounds a request's body, in bytes: options are short.
	maxBody = 64 << 10
	// maxMachine bounds one that is a VM. Empty items of lists take 400 times as much memory when
	// they have been read.
	maxMachine = 256 << 10
	// maxWords bounds what is quoted of an agent's error, in bytes.
	maxWords = 512
)

// writeJSON answers with an object.
func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails if the client has gone
}

// writeError answers with a Status.
func writeError(w http.ResponseWriter, err error) {
	s := statusOf(err)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	writeJSON(w, int(s.Code), s)
}

// statusOf returns the status that a client gets for an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
		if errors.Is(err, context.DeadlineExceeded) {
			known = apierrors.NewTimeoutError(err.Error(), 0)
		}
	}
	s := known.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	return &s
}

func resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: kubevirtv1.Group, Resource: name}
}

// conflict: the VM is not in a state for that.
func conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(resource(machines), name, fmt.Errorf(format, args...))
}

// instanceConflict: the instance is not.
func instanceConflict(name, format string, args ...any) error {
	return apierrors.NewConflict(resource(instances), name, fmt.Errorf(format, args...))
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

func notFound(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: fmt.Sprintf(format, args...),
	}}
}

func internal(format string, args ...any) error {
	return apierrors.NewInternalError(fmt.Errorf(format, args...))
}

// notImplemented: vmlet has no such thing; advice says what to do.
func notImplemented(what, advice string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: "NotImplemented",
		Message: fmt.Sprintf("vmlet does not support %s: %s", what, advice),
	}}
}

// agentError returns what a client gets for an agent's error.
func agentError(instance string, err error) error {
	if err == nil {
		return nil
	}
	s, is := status.FromError(err)
	if !is {
		return err
	}
	words := fmt.Errorf("%s", bounded(s.Message()))
	switch s.Code() {
	case codes.FailedPrecondition, codes.Aborted, codes.AlreadyExists:
		return apierrors.NewConflict(resource(instances), instance, words)
	case codes.InvalidArgument:
		return apierrors.NewBadRequest(words.Error())
	case codes.Unimplemented:
		return notImplemented("this on the instance's node yet", "update vmlet-agent there")
	case codes.Unavailable, codes.ResourceExhausted:
		return apierrors.NewServiceUnavailable(words.Error())
	case codes.DeadlineExceeded, codes.Canceled:
		return apierrors.NewTimeoutError(words.Error(), 0)
	case codes.NotFound:
		return apierrors.NewServiceUnavailable("the node's agent does not know the VM (yet): " + words.Error())
	}
	return apierrors.NewInternalError(words)
}

func bounded(text string) string { return cut(text, maxWords) }

// cut returns what fits into that many bytes, without a part of a character.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// decode reads a body of JSON or YAML; an empty one leaves v as it is.
func decode(r *http.Request, v any) error { return decodeUpTo(maxBody, r, v) }

func decodeUpTo(most int64, r *http.Request, v any) error {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body may have %d bytes", most))
	case err != nil:
		return badRequest("reading the body: %v", err)
	case len(strings.TrimSpace(string(text))) == 0:
		return nil
	}
	if err := yaml.Unmarshal(text, v); err != nil {
		return badRequest("the body is not what was expected: %v", err)
	}
	return nil
}
