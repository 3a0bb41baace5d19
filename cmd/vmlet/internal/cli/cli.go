// Package cli is the command-line client of the agent.
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
	"github.com/spf13/pflag"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/internal/program"
)

// DefaultSocket is where the agent listens unless configured otherwise.
const DefaultSocket = "/run/vmlet/vmlet.sock"

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

// app is one run of the client: its commands, and how it ended.
type app struct {
	*agent
	// running: the arguments made sense, the command itself has begun.
	running bool
}

func newApp(env Env) *app { return &app{agent: &agent{streams: &streams{Env: env}}} }

// streams are where the client reads and writes.
type streams struct {
	Env
	// unwritten is why something could not be written to standard output; nil: all was.
	unwritten error
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
	add(groupLife, life.runCmd(), life.createCmd(), life.startCmd(), life.stopCmd(), life.killCmd(), life.pauseCmd(), life.resumeCmd(), life.resetCmd(),
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

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q: is %s meant?", args[0], `"`+strings.Join(near, `" or "`)+`"`)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// knownCommand wants the words after `help` to be a command.
func knownCommand(help *cobra.Command, words []string) error {
	found, rest, err := help.Root().Find(words)
	if err == nil && found.HasSubCommands() {
		err = unknownCommand(found, rest)
	}
	return err
}

// outputFlag adds -o to a command; the first format is the default.
func outputFlag(cmd *cobra.Command, formats ...output.Format) *output.Flag {
	f := output.NewFlag(formats...)
	cmd.Flags().VarP(f, "output", "o", "`FORMAT`: "+f.List())
	fixed(cmd, "output", f.Names()...)
	return f
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
