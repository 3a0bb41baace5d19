package cli

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
	"github.com/vmlet/vmlet/internal/program"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// nodeCommands are about the node and this program.
type nodeCommands struct{ *agent }

func (a *nodeCommands) nodeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Short:   "Show what this node can virtualise, and with what",
		Example: "  vmlet node\n  vmlet node -o json",
		Args:    arguments(0, 0),
	}
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML, output.Name)
	cmd.RunE = a.connected(func(ctx context.Context, c *client, _ []string) error {
		node, err := c.GetNode(ctx, &nodev1.GetNodeRequest{})
		if err != nil {
			return err
		}
		switch format.Value {
		case output.JSON, output.YAML:
			return output.Message(a.Stdout, format.Value, node)
		case output.Name:
			a.printf("%s\n", node.GetName())
			return nil
		}
		// A node without any VMM has no default either.
		def, err := c.GetVmmName(ctx, &nodev1.GetVmmNameRequest{})
		if err != nil && status.Code(err) != codes.FailedPrecondition && status.Code(err) != codes.NotFound {
			return err
		}
		return a.printNode(node, def.GetName())
	})
	return cmd
}

func (a *nodeCommands) printNode(node *nodev1.GetNodeResponse, defaultVMM string) error {
	a.printf("Node:   %s\nAgent:  %s\n\n", node.GetName(), node.GetAgentVersion())
	rows := [][]string{{"HYPERVISOR", "LEVEL", "REASON"}}
	for _, h := range node.GetHypervisors() {
		rows = append(rows, []string{h.GetName(), h.GetState().Word(), h.GetReason()})
	}
	width := terminal.Width(a.Stdout)
	if err := output.Folded(a.Stdout, rows, width); err != nil {
		return err
	}
	a.printf("\n")
	rows = [][]string{{"VMM", "VERSION", "DEFAULT", "LAZY RESTORE", "BINARY", "REASON"}}
	for _, v := range node.GetVmms() {
		lazy := yesNo(v.GetLazyRestore())
		if v.GetVersion() == "" {
			lazy = "" // it can't be run, and so was not asked
		}
		rows = append(rows, []string{v.GetName(), v.GetVersion(), yesNo(v.GetName() == defaultVMM), lazy, v.GetBinary(), v.GetReason()})
	}
	return output.Folded(a.Stdout, rows, width)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// versions is what `version` shows.
type versions struct {
	Client clientVersion `json:"client"`
	Agent  *agentVersion `json:"agent,omitempty"`
}

type clientVersion struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

type agentVersion struct {
	Version string `json:"version"`
	Node    string `json:"node"`
}

func (a *nodeCommands) versionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and of the agent if it is there",
		Example: "  vmlet version -o json",
		Args:    arguments(0, 0),
	}
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versions{Client: clientVersion{program.Version(a.Version), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}}
		agent, err := a.agentVersion(cmd)
		if err != nil && !errors.As(err, new(*noAgentError)) {
			return err
		}
		v.Agent = agent
		if format.Value != output.Table {
			raw, err := json.Marshal(v)
			if err != nil {
				return err
			}
			return output.Document(a.Stdout, format.Value, json.RawMessage(raw))
		}
		a.printf("Client:  %s (%s, %s)\n", v.Client.Version, v.Client.Go, v.Client.Platform)
		if err != nil {
			a.printf("Agent:   %s\n", err)
			return nil
		}
		a.printf("Agent:   %s (node %s)\n", agent.Version, agent.Node)
		return nil
	}
	return cmd
}

func (a *nodeCommands) agentVersion(cmd *cobra.Command) (*agentVersion, error) {
	c, err := a.connectWithin(cmd.Context(), 0)
	if err != nil {
		return nil, err
	}
	node, err := c.GetNode(cmd.Context(), &nodev1.GetNodeRequest{})
	if err != nil {
		return nil, err
	}
	return &agentVersion{node.GetAgentVersion(), node.GetName()}, nil
}
