package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

func (a *lookCommands) eventsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "events [NAME]",
		Short:             "Print what has happened to machines",
		Long:              "Print what has happened to machines, or to one. With -o json each event is one line.",
		Example:           "  vmlet events -f web-1\n  vmlet events --tail 1000 -o json | jq -c 'select(.type==\"RESET\")'",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeNames(nil, false),
	}
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what happens")
	tail := cmd.Flags().Uint32("tail", 100, "begin with the last `N` events")
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML, output.Name)
	cmd.RunE = a.connected(func(ctx context.Context, c *client, args []string) error {
		req := &nodev1.WatchEventsRequest{Follow: *follow, Tail: *tail}
		if len(args) > 0 {
			req.Name = args[0]
		}
		stream, err := c.WatchEvents(ctx, req)
		if err != nil {
			return err
		}
		header := format.Value == output.Table
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) || err != nil && *follow && ctx.Err() != nil {
				return nil // following ends with Ctrl-C
			}
			if err != nil {
				return err
			}
			if n := m.GetDropped(); n > 0 {
				a.notef("vmlet: %d events are missing here: this reader was too slow for them", n)
			}
			if header {
				a.printf("%s\n", eventLine("TIME", "NAME", "STATE", "TYPE", "MESSAGE"))
				header = false
			}
			if err := a.printEvent(format.Value, m.GetEvent()); err != nil {
				return err
			}
		}
	})
	return cmd
}

func (a *lookCommands) printEvent(format output.Format, e *nodev1.Event) error {
	switch format {
	case output.JSON, output.YAML:
		return output.Line(a.Stdout, format, e)
	case output.Name:
		a.printf("%s\n", e.GetVm())
		return a.unwritten
	}
	state := "-"
	if e.GetState() != nodev1.State_STATE_UNSPECIFIED {
		state = stateName(e.GetState())
	}
	message := e.GetMessage()
	if d := e.GetData(); d != "" && d != "{}" {
		message = strings.TrimSpace(message + " " + d)
	}
	when := e.GetTime().AsTime().In(a.Now().Location()).Format("2006-01-02 15:04:05.000")
	a.printf("%s\n", output.Printable(eventLine(when, e.GetVm(), state, e.GetType(), message), false))
	return a.unwritten
}

// eventLine has columns of a fixed width: events come one by one.
func eventLine(when, name, state, kind, message string) string {
	return strings.TrimRight(fmt.Sprintf("%-23s  %-16s  %-9s  %-20s  %s", when, name, state, kind, message), " ")
}
