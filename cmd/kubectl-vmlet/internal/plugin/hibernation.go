package plugin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/hibernation"
)

// commands connects to the cluster.
func commands(env Environment, target *Target) (*hibernation.Commands, error) {
	cluster, err := env.Connect(target)
	if err != nil {
		return nil, err
	}
	return &hibernation.Commands{Client: cluster.Client, Namespace: cluster.Namespace, Start: cluster.Start, Out: env.Out}, nil
}

func hibernateCommand(env Environment, target *Target) *cobra.Command {
	var wait bool
	var dryRun, output string
	cmd := &cobra.Command{
		Use:   "hibernate VM",
		Short: "Save a VM's memory to a claim and remove its pod",
		Long: "Save a VM's memory to a claim and remove its pod: sets spec.runStrategy to Hibernate, and notes the\n" +
			"strategy before in an annotation, for resume. --dry-run=client writes that as a patch.",
		Example: "  kubectl vmlet hibernate web --wait\n" +
			"  kubectl vmlet hibernate web --dry-run=client -o yaml > patch.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case dryRun != "" && dryRun != "client" && dryRun != "none":
				return usageError{fmt.Errorf("--dry-run=%s: the values are client and none", dryRun)}
			case output != "" && output != "yaml":
				return usageError{fmt.Errorf("--output=%s: the value is yaml", output)}
			case output != "" && dryRun != "client":
				return usageError{fmt.Errorf("--output goes with --dry-run=client")}
			}
			return oneVM(cmd, args)
		},
		ValidArgsFunction: completeVM(env, target),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := commands(env, target)
			if err != nil {
				return err
			}
			if dryRun == "client" {
				return c.Patch(cmd.Context(), args[0])
			}
			return c.Hibernate(cmd.Context(), args[0], wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the VM is hibernated, or an attempt has failed")
	cmd.Flags().StringVar(&dryRun, "dry-run", "", "client: change nothing, and write what would be")
	cmd.Flags().StringVarP(&output, "output", "o", "", "yaml: how --dry-run=client writes it")
	return cmd
}

func resumeCommand(env Environment, target *Target) *cobra.Command {
	var boot, wait bool
	cmd := &cobra.Command{
		Use:   "resume VM",
		Short: "Have a hibernated VM go on, or cancel its hibernation",
		Long: "Have a hibernated VM go on where it was, with the run strategy that it had before. While the VM is still\n" +
			"being saved, this cancels the save. --boot discards what was saved: to the guest it is a power cut.",
		Example:           "  kubectl vmlet resume web --wait",
		Args:              oneVM,
		ValidArgsFunction: completeVM(env, target),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := commands(env, target)
			if err != nil {
				return err
			}
			return c.Resume(cmd.Context(), args[0], boot, wait)
		},
	}
	cmd.Flags().BoolVar(&boot, "boot", false, "discard the saved memory and boot; sets spec.startStrategy to Boot, with --wait until the guest runs")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the guest runs, or the resume has failed")
	return cmd
}

func moveCommand(env Environment, target *Target) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "move VM",
		Short: "Hibernate a VM and have it go on on another node",
		Long: "Hibernate a VM and have it go on on another node. One with evictionStrategy Hibernate is evicted, as a drain\n" +
			"does it. Any other one is hibernated and resumed: it may come back to its node unless that is cordoned,\n" +
			"and the command waits in between.",
		Example:           "  kubectl cordon n1 && kubectl vmlet move web --wait",
		Args:              oneVM,
		ValidArgsFunction: completeVM(env, target),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := commands(env, target)
			if err != nil {
				return err
			}
			return c.Move(cmd.Context(), args[0], wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the guest goes on")
	return cmd
}
