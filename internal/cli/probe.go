package cli

import (
	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/internal/cli/output"
)

func (a *app) probeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Say what this machine can give to guests, and why not more",
		Args:  arguments(0, 0),
	}
	f := newCapabilitiesFlags(cmd)
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		doc, err := a.capabilitiesDocument(cmd.Context(), f)
		if err != nil {
			return err
		}
		if format.Value != output.Table {
			return output.Message(a.Stdout, format.Value, doc)
		}
		return nil
	}
	return cmd
}
