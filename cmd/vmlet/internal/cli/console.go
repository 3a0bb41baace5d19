package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const defaultEscape = "^]"

func (a *lookCommands) consoleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "console NAME",
		Short: "Use a machine's serial console; ^] leaves it",
		Long: `Use a machine's serial console. ^] leaves it; the machine runs on.

If standard input is no terminal it is passed on as it is, an escape key only
works if --escape asks for it, and its end leaves the console connected until
the machine ends.`,
		Example: "  vmlet console web-1\n" +
			`  printf 'uptime\n' | vmlet console web-1 >console.txt`,
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNames(running, false),
	}
	escape := escapeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := a.escapeKey(cmd, *escape)
		if err != nil {
			return err
		}
		c, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		name := args[0]
		left, err := a.attach(cmd.Context(), c, name, key)
		switch {
		case err != nil:
			return err
		case left:
			a.notef("Left the console of %s.", name)
		default:
			a.notef("The console of %s has ended.", name)
		}
		return nil
	}
	return cmd
}

func escapeFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("escape", defaultEscape, "the `KEY` that leaves the console: ^X, one character, or none")
}

// escapeKey returns the key that leaves: none by default where a program types.
func (a *streams) escapeKey(cmd *cobra.Command, flag string) (terminal.Escape, error) {
	if !cmd.Flags().Changed("escape") && !terminal.Is(a.Stdin) {
		return terminal.Escape{}, nil
	}
	key, err := terminal.ParseEscape(flag)
	if err != nil {
		return key, usagef("--escape: %w", err)
	}
	return key, nil
}

// attach connects the standard streams with a console until the machine ends
// or the user leaves. An interruption is an error, context.Canceled.
func (a *streams) attach(ctx context.Context, c *client, name string, key terminal.Escape) (left bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.AttachConsole(ctx)
	if err != nil {
		return false, err
	}
	// An error of Send is io.EOF alone: Recv has the cause.
	_ = stream.Send(&nodev1.AttachConsoleRequest{Name: name})
	if terminal.Is(a.Stdin) {
		a.notef("Console of %s. The key to leave is %v.", name, key)
		defer a.notef("")
	}
	restore, err := terminal.Raw(a.Stdin)
	if err != nil {
		return false, err
	}
	defer restore()

	out, in := make(chan error, 1), make(chan error, 1)
	go func() { out <- copyStream(a.Stdout, stream) }()
	// Nobody can end a Read of a terminal: this goroutine ends with the process.
	go func() { in <- sendConsole(stream, key.Reader(a.Stdin)) }()
	for {
		select {
		case err := <-out:
			return false, err
		case err := <-in:
			if errors.Is(err, terminal.ErrEscape) {
				return true, nil
			}
			in = nil // the input's end is not the console's
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

type consoleStream = grpc.BidiStreamingClient[nodev1.AttachConsoleRequest, nodev1.AttachConsoleResponse]

// sendConsole returns what ended the reading.
func sendConsole(stream consoleStream, r io.Reader) error {
	for {
		b := make([]byte, 4096)
		n, err := r.Read(b)
		if n > 0 {
			if err := stream.Send(&nodev1.AttachConsoleRequest{Data: b[:n]}); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}
