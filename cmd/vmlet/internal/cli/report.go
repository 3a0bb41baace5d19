package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// app is one run of the client: its commands, and how it ended.
type app struct {
	*agent
	// running: the arguments made sense, the command itself has begun.
	running bool
}

func newApp(env Env) *app { return &app{agent: &agent{streams: &streams{Env: env}}} }

// report writes an error for people and returns the exit code for programs.
func (a *app) report(cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	var several failures
	if !errors.As(err, &several) {
		several = failures{err}
	}
	code := exitOK
	for _, err := range several {
		c, text := a.explain(cmd.Context(), err)
		a.notef("vmlet: %s", text)
		if code != exitOK && code != c {
			c = exitFailed
		}
		code = c
	}
	if code == exitUsage {
		a.notef("See: %s --help", cmd.CommandPath())
	}
	return code
}

// explain returns an error's exit code and its text without gRPC's words.
func (a *app) explain(ctx context.Context, err error) (code int, text string) {
	if errors.As(err, new(*noAgentError)) || errors.As(err, new(*lostAgentError)) {
		return exitNoAgent, err.Error()
	}
	if errors.As(err, new(usageError)) || !a.running {
		return exitUsage, err.Error()
	}
	var s interface{ GRPCStatus() *status.Status }
	isStatus := errors.As(err, &s)
	cancelled := errors.Is(err, context.Canceled) || isStatus && s.GRPCStatus().Code() == codes.Canceled
	switch {
	case cancelled && ctx.Err() != nil:
		return exitFailed, "interrupted"
	case isStatus:
		code, text = a.explainStatus(s.GRPCStatus())
		if of := new(fileError); errors.As(err, &of) {
			text = of.file + ": " + text
		}
		return code, text
	}
	return exitFailed, err.Error()
}

func (a *app) explainStatus(s *status.Status) (code int, text string) {
	switch s.Code() {
	case codes.NotFound:
		return exitNoVM, s.Message()
	case codes.DeadlineExceeded:
		if a.timeout > 0 {
			return exitFailed, fmt.Sprintf("no reply within %v (--timeout): the agent may still do it; see: vmlet list", a.timeout)
		}
	case codes.Unimplemented:
		return exitFailed, "the agent does not know this request: another version than this client's? See: vmlet version"
	}
	return exitFailed, withViolations(s)
}

// withViolations lists the faults of fields, one a line. They may be all that
// the message says, too.
func withViolations(s *status.Status) string {
	var faults []string
	for _, d := range s.Details() {
		bad, ok := d.(*errdetails.BadRequest)
		if !ok {
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			faults = append(faults, v.GetField()+": "+v.GetDescription())
		}
	}
	head := s.Message()
	switch {
	case len(faults) == 0 || len(faults) == 1 && strings.HasSuffix(head, faults[0]):
		return head
	case head == strings.Join(faults, "\n"):
		head = fmt.Sprintf("%d faults:", len(faults))
	case !slices.ContainsFunc(faults, func(f string) bool { return !strings.Contains(head, f) }):
		return head // it has them all, in their places
	}
	return head + "\n  " + strings.Join(faults, "\n  ")
}
