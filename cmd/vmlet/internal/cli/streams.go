package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
)

// Env is all that the client takes from its surroundings.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Version of the build; empty: what the Go build recorded.
	Version string
	// Program is the path of this program; empty: unknown.
	Program string
	Getenv  func(string) string
	Now     func() time.Time
	// Sleep waits for so long, or until ctx ends, whose error it then returns.
	Sleep func(ctx context.Context, d time.Duration) error
	// Dial connects to the agent's unix socket.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
	// Exec goes on as another program, and returns only if it can't.
	Exec func(program string, argv []string) error
}

// SystemEnv returns the process's own surroundings.
func SystemEnv(version string) Env {
	self, _ := os.Executable() // without it, programs are looked for in PATH alone
	return Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Version: version,
		Program: self,
		Getenv:  os.Getenv,
		Now:     time.Now,
		Sleep:   sleep,
		Dial:    dialUnix,
		Exec:    func(program string, argv []string) error { return syscall.Exec(program, argv, os.Environ()) },
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// streams are where the client reads and writes.
type streams struct {
	Env
	// unwritten is why something could not be written to standard output; nil: all was.
	unwritten error
}

func (a *streams) printf(format string, args ...any) {
	if _, err := fmt.Fprint(a.Stdout, output.Printable(fmt.Sprintf(format, args...), true)); err != nil && a.unwritten == nil {
		a.unwritten = err
	}
}

// notef tells the user something beside the result.
func (a *streams) notef(format string, args ...any) {
	fmt.Fprintln(a.Stderr, output.Printable(fmt.Sprintf(format, args...), true))
}

// outputFlag adds -o to a command; the first format is the default.
func outputFlag(cmd *cobra.Command, formats ...output.Format) *output.Flag {
	f := output.NewFlag(formats...)
	cmd.Flags().VarP(f, "output", "o", "`FORMAT`: "+f.List())
	fixed(cmd, "output", f.Names()...)
	return f
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q: is %s meant?", args[0], `"`+strings.Join(near, `" or "`)+`"`)
	}
	return fmt.Errorf("unknown command %q", args[0])
}
