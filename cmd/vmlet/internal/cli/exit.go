package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNoVM    = 3
	exitNoAgent = 4
)

// usageError is a fault of the command line that is found by the command.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// flagFault says what a flag takes, where pflag has the words of package strconv.
func flagFault(_ *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want := ""
	switch bad.GetFlag().Value.Type() {
	case "uint32":
		want = "a whole number, 0 or more, is wanted"
	case "float64":
		want = "a number is wanted"
	case "bool":
		want = "true or false is wanted"
	case "duration":
		want = "a number with a unit is wanted, such as 90s, 2m or 1h30m"
	default:
		want = bad.Unwrap().Error()
	}
	return fmt.Errorf("--%s %s: %s", bad.GetFlag().Name, bad.GetValue(), want)
}

// pathArgument makes an argument an absolute path. One that is empty is most likely a
// variable that a script hasn't set, and not the current folder.
func pathArgument(name, path string) (string, error) {
	if path == "" {
		return "", usagef("%s is empty: a path is wanted", name)
	}
	return filepath.Abs(path)
}

// arguments wants at least minimum and at most maximum of them.
func arguments(minimum, maximum int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= minimum && len(args) <= maximum {
			return nil
		}
		return usagef("wrong number of arguments (%d): want %s", len(args), cmd.UseLine())
	}
}

// noAgentError: there was no way to the agent.
type noAgentError struct {
	socket string
	err    error
}

func (e *noAgentError) Error() string {
	head := fmt.Sprintf("cannot reach the agent on %s: ", e.socket)
	switch {
	case errors.Is(e.err, fs.ErrPermission):
		return head + fmt.Sprintf("permission denied to uid %d: run this as root, or add that uid to allowedUsers in the agent's configuration", os.Geteuid())
	case errors.Is(e.err, syscall.ENOENT):
		return head + "no such file; start one with: vmlet agent, or systemctl start vmlet"
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return head + "no process listens there; start one with: vmlet agent, or systemctl start vmlet"
	}
	return head + e.err.Error()
}

func (e *noAgentError) Unwrap() error { return e.err }

// lostAgentError: the agent hung up in the middle of a request.
type lostAgentError struct {
	socket string
	err    error
}

func (e *lostAgentError) Error() string {
	return fmt.Sprintf("the agent on %s closed the connection: it has stopped, its machines run on; see: systemctl status vmlet", e.socket)
}

func (e *lostAgentError) Unwrap() error { return e.err }

// failures are those of a command with several names.
type failures []error

func (f failures) Error() string { return errors.Join(f...).Error() }

func (f failures) Unwrap() []error { return f }

func (f failures) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// joined returns those of the errors that are.
func joined(errs ...error) error {
	var f failures
	for _, err := range errs {
		if err != nil {
			f = append(f, err)
		}
	}
	return f.orNil()
}
