package plugin

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/convert"
)

func convertCommand(env Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "convert FILE...",
		Short: "Rewrite manifests of pools as their design has them for this API",
		Long: "Print the manifests of files (-: of standard input), with VirtualMachinePools of kubevirt.io/v1, as their\n" +
			"design has them, as those of pool.kubevirt.io. Nothing is asked of the cluster, and nothing applied.",
		Example: "  kubectl vmlet convert pool.yaml | kubectl apply -f -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name the files to convert, or - for standard input")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, name := range args {
				if i > 0 {
					fmt.Fprintln(env.Out, "---")
				}
				if err := convertFile(cmd, env, name); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		},
	}
}

func convertFile(cmd *cobra.Command, env Environment, name string) error {
	if name == "-" {
		return convert.Manifests(cmd.InOrStdin(), env.Out)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return convert.Manifests(file, env.Out)
}
