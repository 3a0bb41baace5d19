package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/sysfs/draw"
)

func (a *nodeCommands) topologyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Show what this node is made of: processors, caches, memory, devices",
		Long: `Show what this node is made of, as the files of /sys and /proc say: packages,
NUMA nodes, caches, cores, CPUs, huge pages, and the devices on each node.

It needs no agent and no root. With --sysfs-root, --proc-root and --dev-root it
reads files that were captured on another machine; a tree without /proc or /dev
is read, too. What could not be read is listed at the end of the tree, and in
notes of JSON and YAML.`,
		Example: `  vmlet topology
  vmlet topology -o svg > node.svg
  vmlet topology -o json | jq '.cpus[] | select(.node == 0).id'
  vmlet topology --sysfs-root other/sys --proc-root other/proc --dev-root other/dev`,
		Args: arguments(0, 0),
	}
	format := outputFlag(cmd, output.Tree, output.JSON, output.YAML, output.SVG)
	roots := rootFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.checkRoots(cmd.Flags(), *roots); err != nil {
			return err
		}
		return a.printTopology(format.Value, sysfs.Read(*roots))
	}
	return cmd
}

func (a *nodeCommands) printTopology(format output.Format, h *sysfs.Host) error {
	switch format {
	case output.JSON, output.YAML:
		return output.Document(a.Stdout, format, h)
	case output.SVG:
		return draw.SVG(a.Stdout, h)
	}
	var b bytes.Buffer
	if err := draw.Tree(&b, h); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.Stdout, output.Printable(b.String(), true))
	return err
}
