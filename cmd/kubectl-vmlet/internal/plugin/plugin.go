// Package plugin has the commands of kubectl-vmlet: flags as kubectl's, the cluster's API,
// and what is printed. Each command's own work is in a package beside this one.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/nodes"
	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/why"
	"github.com/vmlet/vmlet/internal/program"
)

// Exit codes; those that `vmlet` has, too, are the same.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitNoVM   = 3
)

// Environment is what the program has of its surroundings.
type Environment struct {
	Out, Err io.Writer
	Now      func() time.Time
	Version  string
	// Connect returns the cluster that flags and kubeconfig name.
	Connect func(*Target) (*Cluster, error)
}

// System returns the environment of a program that was linked with a version, or with none.
func System(linked string) Environment {
	return Environment{Out: os.Stdout, Err: os.Stderr, Now: time.Now, Version: program.Version(linked), Connect: Connect}
}

// usageError is a fault of the command line.
type usageError struct{ error }

// Main runs a command line and returns the program's exit code.
func Main(ctx context.Context, env Environment, args []string) int {
	root, err := command(env)
	if err != nil {
		fmt.Fprintf(env.Err, "error: %v\n", err)
		return exitFailed
	}
	root.SetArgs(args)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	if err = root.ExecuteContext(ctx); err == nil {
		return exitOK
	}
	fmt.Fprintf(env.Err, "error: %v\n", err)
	var missing *why.NotFoundError
	var usage usageError
	switch {
	case errors.As(err, &missing):
		return exitNoVM
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailed
}

func command(env Environment) (*cobra.Command, error) {
	target := newTarget()
	root := &cobra.Command{
		Use:   "kubectl-vmlet",
		Short: "What virtctl doesn't know of VMs",
		Long: "What virtctl doesn't know of VMs. kubectl runs it as `kubectl vmlet`.\n\n" +
			"Exit codes: 0 answered or done, 1 failed, 2 wrong usage, 3 no such VM.",
		Version:       env.Version,
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vmlet"},
		Args:        func(_ *cobra.Command, args []string) error { return unknownCommand(args) },
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	target.addFlags(root.PersistentFlags())
	root.AddCommand(whyCommand(env, target), nodesCommand(env, target), hibernateCommand(env, target), resumeCommand(env, target), moveCommand(env, target), renewCommand(env, target), convertCommand(env))
	return root, completeFlags(root)
}

func unknownCommand(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unknown command %q: `kubectl vmlet --help` lists those that exist", args[0])}
}

// oneVM takes the name of one VM.
func oneVM(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("name one VM: kubectl vmlet %s VM", cmd.Name())}
	}
	return nil
}

func whyCommand(env Environment, target *Target) *cobra.Command {
	return &cobra.Command{
		Use:   "why VM",
		Short: "Say why a VM waits or does not start",
		Long: "Say why a VM waits or does not start, and what to do about it: conditions of the VM, its\n" +
			"instance and its pod, its claims and events about all of them, on one page.",
		Example:           "  kubectl vmlet why web -n shop",
		Args:              oneVM,
		ValidArgsFunction: completeVM(env, target),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := env.Connect(target)
			if err != nil {
				return err
			}
			objects, err := why.Gather(cmd.Context(), cluster.Client, cluster.Namespace, args[0])
			if err != nil {
				return err
			}
			return why.Explain(objects).Print(env.Out, env.Now())
		},
	}
}

func nodesCommand(env Environment, target *Target) *cobra.Command {
	var home string
	var abilities bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show which nodes can run VMs, with what, and why others can't",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 {
				return usageError{fmt.Errorf("nodes takes no arguments, and lists all")}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := env.Connect(target)
			if err != nil {
				return err
			}
			rows, unread, err := nodes.List(cmd.Context(), cluster.Client, home, env.Now())
			if err != nil {
				return err
			}
			if unread != nil {
				fmt.Fprintf(env.Err, "warning: agents are unknown: %v\n", unread)
			}
			if err := nodes.Print(env.Out, rows); err != nil || !abilities {
				return err
			}
			return nodes.PrintAbilities(env.Out, rows)
		},
	}
	cmd.Flags().BoolVar(&abilities, "cpu", false, "show the CPU models and features, and machine types, that guests can have on each")
	cmd.Flags().StringVar(&home, "vmlet-namespace", "vmlet", "namespace that vmlet is installed in")
	return cmd
}
