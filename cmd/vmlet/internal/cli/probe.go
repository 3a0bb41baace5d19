package cli

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/readiness"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
)

func (a *nodeCommands) probeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Say what this machine can give to guests, and what is amiss",
		Long: `Say what this machine can give to guests: hypervisors, VMMs, CPU models,
devices, memory, confidential computing. What is amiss comes with what to do
about it. No agent is needed, and no rights: what only root can see is reported
as unknown. What takes long to ask is remembered until something changes that
would change it (the kernel, a program, a device, ...).

PASS: it works. INFO: it isn't there, and few need it. WARN: something doesn't
work, or could not be asked. FAIL: no VM can run because of it.

Exit codes: 0 VMs can run here; 1 no hypervisor works, or no VMM runs guests
under it; 2 wrong usage of the command line.`,
		Example: "  vmlet probe\n  vmlet probe -o json | jq .hypervisors\n  vmlet probe --refresh --config /etc/vmlet/agent.yaml",
		Args:    arguments(0, 0),
	}
	f := newCapabilitiesFlags(cmd)
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML)
	vmms := cmd.Flags().Bool("vmms", false, "print what the VMMs say of themselves, for a shim in a pod to hand to the node's agent")
	_ = cmd.Flags().MarkHidden("vmms") // fails for a flag that isn't there
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *vmms {
			return a.sayings(cmd.Context(), f)
		}
		doc, err := a.capabilitiesDocument(cmd.Context(), f)
		if err != nil {
			return err
		}
		if format.Value != output.Table {
			if err := output.Message(a.Stdout, format.Value, doc); err != nil {
				return err
			}
			return unready(readiness.Ready(doc))
		}
		report := readiness.Of(doc)
		if err := readiness.Write(a.Stdout, report, terminal.Width(a.Stdout)); err != nil {
			return err
		}
		return unready(report.Ready)
	}
	return cmd
}

// unready makes the exit code of a machine that runs no VM.
func unready(ready bool) error {
	if ready {
		return nil
	}
	return errors.New("no VM can run on this machine")
}

// sayings prints what another process needs to know to plan VMs for this one's
// VMMs. Nothing is kept: a container's files go with it.
func (a *nodeCommands) sayings(ctx context.Context, f *capabilitiesFlags) error {
	cfg, err := sources.Load(f.config)
	if err != nil {
		return err
	}
	return json.NewEncoder(a.Stdout).Encode(cfg.Sayings(ctx))
}
