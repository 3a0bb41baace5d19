// Command vmlet-autopilot applies what the platform is to have, and keeps it so. Of several
// replicas one leads; the others wait.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/rbac"
	"github.com/vmlet/vmlet/internal/program"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// The program's exit codes, beside 0.
const (
	exitFailed = 1 // an asset failed, or the program
	exitUsage  = 2
)

// errAssets is returned where the output says what is wrong.
var errAssets = errors.New("assets failed")

// usage is an error of anyone who calls.
type usage struct{ error }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), program.EndSignals()...)
	defer stop()
	context.AfterFunc(ctx, stop)
	cmd := command()
	cmd.SetArgs(append([]string{}, args...)) // nil would be the process's own
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	err := cmd.ExecuteContext(ctx)
	var wrong usage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errAssets):
		return exitFailed
	}
	fmt.Fprintln(errOut, "vmlet-autopilot:", err)
	if errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailed
}

func command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "vmlet-autopilot", Short: "Apply what the platform is to have, and keep it so", Version: program.Version(version),
		SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage{fmt.Errorf("there is no command %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage{fmt.Errorf("choose run, render, rbac or tune: `%s --help` says what they do", cmd.Name())}
		},
	}
	cmd.AddCommand(runCommand(), renderCommand(), rbacCommand(), tuneCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage{err} })
	}
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usage{err}
	}
	return nil
}

func rbacCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use: "rbac", Short: "Print the roles that the catalogue needs", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := catalog.Embedded()
			if err != nil {
				return err
			}
			text, err := rbac.Generate(c, namespace)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", defaultNamespace, "`NAMESPACE` of the autopilot")
	return cmd
}
