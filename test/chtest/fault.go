package chtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// fault is a request that is refused: a status, and what is wrong, the outermost
// cause first.
type fault struct {
	status int
	causes []string
}

func (f *fault) Error() string {
	text, err := json.Marshal(f.causes)
	if err != nil {
		return http.StatusText(f.status)
	}
	return string(text)
}

// errNoVM is a VM that was not created: 404 from version 53 on, for the calls
// that look for the configuration. Those that look for a booted VM first say
// errNotBooted, a 500, in that case too.
func errNoVM() error      { return &fault{http.StatusNotFound, []string{"there is no VM"}} }
func errNotBooted() error { return errors.New("no VM is booted") }

// badRequest is an endpoint that was called in the wrong way.
func badRequest() *fault {
	return &fault{http.StatusBadRequest, []string{http.StatusText(http.StatusBadRequest)}}
}

// badBody is a body that could not be read.
func badBody(err error) *fault {
	return &fault{http.StatusBadRequest, []string{"the body is not what the endpoint takes", err.Error()}}
}

// refusal puts what a call was about before what went wrong.
func refusal(call string, err error) *fault {
	outer := []string{"refused by the API", call + " failed"}
	var inner *fault
	if errors.As(err, &inner) {
		return &fault{inner.status, append(outer, inner.causes...)}
	}
	return &fault{http.StatusInternalServerError, append(outer, chain(err)...)}
}

// chain is an error with each of those it wraps after it.
func chain(err error) []string {
	var out []string
	for ; err != nil; err = errors.Unwrap(err) {
		out = append(out, err.Error())
	}
	return out
}

// because wraps an error without repeating its text, as the real one's layers do.
type because struct {
	text  string
	cause error
}

func (b *because) Error() string { return b.text }
func (b *because) Unwrap() error { return b.cause }

func causedBy(cause error, format string, args ...any) error {
	if cause == nil {
		return nil
	}
	return &because{fmt.Sprintf(format, args...), cause}
}
