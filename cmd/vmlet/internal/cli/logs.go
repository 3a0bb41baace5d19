package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

func (a *lookCommands) logsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "logs NAME",
		Short:             "Print what a machine wrote to its console",
		Example:           "  vmlet logs -f web-1\n  vmlet logs --vmm --tail 20 web-1",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNames(nil, false),
	}
	flags := cmd.Flags()
	follow := flags.BoolP("follow", "f", false, "go on with what comes")
	tail := flags.Uint32("tail", 0, "only the last `N` lines (0: all that is kept)")
	vmm := flags.Bool("vmm", false, "the VMM's own messages instead")
	shim := flags.Bool("shim", false, "the shim's messages instead")
	cmd.MarkFlagsMutuallyExclusive("vmm", "shim")
	cmd.RunE = a.connected(func(ctx context.Context, c *client, args []string) error {
		req := &nodev1.ReadLogsRequest{Name: args[0], Log: "console", Follow: *follow, TailLines: *tail}
		if *vmm {
			req.Log = "vmm"
		}
		if *shim {
			req.Log = "shim"
		}
		err := copyLogs(ctx, a.Stdout, c, req)
		if *follow && ctx.Err() != nil {
			return nil // following ends with Ctrl-C
		}
		return err
	})
	return cmd
}

func copyLogs(ctx context.Context, w io.Writer, c *client, req *nodev1.ReadLogsRequest) error {
	stream, err := c.ReadLogs(ctx, req)
	if err != nil {
		return err
	}
	return copyStream(w, stream)
}

// copyStream writes the data of a stream's messages until it ends.
func copyStream[M interface{ GetData() []byte }](w io.Writer, stream interface{ Recv() (M, error) }) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return err
		}
	}
}
