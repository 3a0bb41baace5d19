// Package cli is the command-line client of the agent.
package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vmlet/vmlet/internal/program"
)

// DefaultSocket is where the agent listens unless configured otherwise.
const DefaultSocket = "/run/vmlet/vmlet.sock"

// Main runs the client with arguments (without the program's name) and returns
// its exit code. Cancelling ctx is what Ctrl-C does.
func Main(ctx context.Context, env Env, args []string) int {
	a := newApp(env)
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.unwritten
	}
	code := a.report(cmd, err)
	a.close()
	return code
}

const (
	groupLife  = "life"
	groupLook  = "look"
	groupImage = "image"
	groupNode  = "node"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "vmlet",
		Short: "Run virtual machines on this node",
		Long: `vmlet runs virtual machines on this node: it boots, saves, restores and ends them.

Exit codes: 0 done; 1 failed (this includes a faulty specification); 2 wrong
usage of the command line; 3 no such VM, or no such device of it; 4 the agent
cannot be reached, for which a command waits 5 seconds.`,
		Example: `  vmlet run web-1 --kernel vmlinuz --initrd initrd.img --memory 1Gi
  vmlet save web-1 /srv/images/web-1
  vmlet start web-1`,
		Version:       program.Version(a.Version),
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2, // cobra's own, where it makes suggestions itself
		Args:                       unknownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(flagFault)
	root.AddGroup(
		&cobra.Group{ID: groupLife, Title: "Run machines:"},
		&cobra.Group{ID: groupLook, Title: "Look at machines:"},
		&cobra.Group{ID: groupImage, Title: "Save and restore:"},
		&cobra.Group{ID: groupNode, Title: "The node and this program:"},
	)
	root.SetHelpCommandGroupID(groupNode)
	root.SetCompletionCommandGroupID(groupNode)
	a.globalFlags(root.PersistentFlags())
	a.addCommands(root)
	// Cobra's own: they answer a word that they don't know with help, and exit code 0.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = knownCommand
		case "completion":
			c.Args, c.RunE = unknownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	a.wrap(root)
	return root
}

func (a *app) globalFlags(flags *pflag.FlagSet) {
	socket := a.Getenv("VMLET_SOCKET")
	if socket == "" {
		socket = DefaultSocket
	}
	flags.StringVar(&a.socket, "socket", socket, "the agent's `PATH` (or set VMLET_SOCKET)")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up waiting for a reply after this long (0: never; not for what streams)")
}

func (a *app) addCommands(root *cobra.Command) {
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	life, devices, look := &lifeCommands{a.agent}, &deviceCommands{a.agent}, &lookCommands{a.agent}
	image, node := &imageCommands{a.agent}, &nodeCommands{a.agent}
	add(groupLife, life.runCmd(), life.createCmd(), life.startCmd(), life.stopCmd(), life.killCmd(), life.pauseCmd(), life.resumeCmd(), life.renewCmd(), life.resetCmd(),
		devices.resizeCmd(), devices.attachCmd(), devices.detachCmd(), life.deleteCmd())
	add(groupLook, look.listCmd(), look.getCmd(), look.consoleCmd(), look.logsCmd(), look.eventsCmd())
	add(groupImage, image.saveCmd(), image.restoreCmd(), image.imageCmd())
	add(groupNode, node.agentCmd(), node.topologyCmd(), node.probeCmd(), node.overheadCmd(), node.nodeCmd(), node.labelsCmd(), node.versionCmd())
}

// wrap notes when a command begins: whatever goes wrong before is wrong usage.
func (a *app) wrap(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.running = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		a.wrap(c)
	}
}

// knownCommand wants the words after `help` to be a command.
func knownCommand(help *cobra.Command, words []string) error {
	found, rest, err := help.Root().Find(words)
	if err == nil && found.HasSubCommands() {
		err = unknownCommand(found, rest)
	}
	return err
}
