package cli

import (
	"context"

	"github.com/spf13/cobra"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

func (a *lifeCommands) createCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create -f FILE...",
		Short: "Make machines of specifications without starting them",
		Long: `Make machines of specifications, in YAML or JSON, without starting them.
Relative paths in a file are relative to the file's folder, those from standard
input to the current one. Creating the same again changes nothing.`,
		Example: "  vmlet create -f web-1.yaml -f web-2.yaml\n  vmlet run web-3 --memory 1Gi --dry-run | vmlet create -f -",
		Args:    arguments(0, 0),
	}
	var files []string
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "a specification's `FILE`, - for standard input (may be repeated)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(files) == 0 {
			return usagef("which specification? -f FILE is wanted")
		}
		// All are read before any is made: a typing error leaves nothing half done.
		var specs []fileSpec
		var failed failures
		for _, file := range files {
			s, err := a.readSpec(cmd.Context(), file)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			specs = append(specs, fileSpec{file, s})
		}
		if err := failed.orNil(); err != nil {
			return err
		}
		return a.create(cmd.Context(), specs)
	}
	return cmd
}

func (a *lifeCommands) create(ctx context.Context, specs []fileSpec) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var failed failures
	for _, s := range specs {
		r, err := c.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: s.spec})
		if err != nil {
			failed = append(failed, &fileError{s.file, err})
			continue
		}
		a.printf("%s created\n", r.GetVm().GetSpec().GetName())
	}
	return failed.orNil()
}
