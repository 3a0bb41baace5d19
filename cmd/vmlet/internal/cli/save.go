package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

func (a *imageCommands) saveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "save NAME DIR",
		Short: "Write a machine's memory and state to a folder, and end it",
		Long: `Write a machine's memory and state to a folder, and end the machine: start or
restore lets it go on from there. DIR must not exist or be empty. Ctrl-C gives
the save up; the guest then goes on.`,
		Example: "  vmlet save web-1 /srv/images/web-1\n  vmlet save --keep-running web-1 /srv/images/web-1.$(date +%s)",
		Args:    arguments(2, 2),
	}
	cmd.ValidArgsFunction = a.nameThenDir()
	keep := cmd.Flags().Bool("keep-running", false, "let the guest go on afterwards")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := pathArgument("DIR", args[1])
		if err != nil {
			return err
		}
		c, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		req := &nodev1.SaveVMRequest{Name: args[0], Directory: dir, KeepRunning: *keep}
		stream, err := c.SaveVM(cmd.Context(), req)
		if err != nil {
			return err
		}
		last, err := followProgress(stream, a.newProgress("save "+req.Name))
		if err != nil {
			if cmd.Context().Err() != nil {
				return a.afterInterruptedSave(context.WithoutCancel(cmd.Context()), c, req)
			}
			return err
		}
		r := last.GetResult()
		still := ""
		if req.KeepRunning {
			still = "; the guest was paused for " + output.Milliseconds(r.GetStoppedMs())
		}
		a.printf("%s saved to %s (%s of memory, %s of state%s)\n", req.Name, dir,
			output.Bytes(r.GetMemoryBytes()), output.Bytes(r.GetStateBytes()), still)
		return nil
	}
	return cmd
}

// afterInterruptedSave says what became of the machine: the interruption may
// have come too late.
func (a *imageCommands) afterInterruptedSave(ctx context.Context, c *client, req *nodev1.SaveVMRequest) error {
	ctx, cancel := context.WithTimeout(ctx, secondChance)
	defer cancel()
	vm, err := a.waitState(ctx, c, req.Name, func(s nodev1.State) bool { return s != nodev1.State_STATE_SAVING })
	if err != nil {
		return fmt.Errorf("save of %q interrupted; what became of it could not be learned: see vmlet list", req.Name)
	}
	if s := vm.GetStatus().GetState(); s != nodev1.State_STATE_SAVED {
		return fmt.Errorf("save of %q interrupted: nothing was saved, the guest goes on (%s)", req.Name, stateName(s))
	}
	return fmt.Errorf("save of %q interrupted too late: it is saved in %s", req.Name, vm.GetStatus().GetImage().GetPath())
}

func (a *imageCommands) restoreCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore DIR",
		Short: "Make a machine of a saved image and let it go on",
		Example: `  vmlet restore /srv/images/web-1
  vmlet restore /srv/images/golden --name web-7 --new-identity --lazy`,
		Args:              arguments(1, 1),
		ValidArgsFunction: completeDir,
	}
	var req nodev1.RestoreVMRequest
	flags := cmd.Flags()
	flags.StringVar(&req.Name, "name", "", "the machine's `NAME` (default: the one in the image)")
	flags.BoolVar(&req.Lazy, "lazy", false, "map the memory instead of reading it: at once, whatever its size; the image must stay while the machine runs")
	flags.BoolVar(&req.Paused, "paused", false, "do not let the guest run yet: resume does")
	flags.BoolVar(&req.AllowChangedDisks, "allow-changed-disks", false, "restore though a disk has changed since the save, or is a block device, which can't be shown to be unchanged: if it has changed, this may destroy its filesystem")
	flags.BoolVar(&req.NewIdentity, "new-identity", false, "a new id and new MAC addresses, for a clone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := pathArgument("DIR", args[0])
		if err != nil {
			return err
		}
		c, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		stream, err := c.RestoreVM(cmd.Context(), &nodev1.RestoreVMRequest{
			Directory: dir, Name: req.Name, Lazy: req.Lazy, Paused: req.Paused,
			AllowChangedDisks: req.AllowChangedDisks, NewIdentity: req.NewIdentity,
		})
		if err != nil {
			return err
		}
		last, err := followProgress(stream, a.newProgress("restore"))
		if err != nil {
			return err
		}
		vm := last.GetVm()
		a.printf("%s restored from %s (%s)\n", vm.GetSpec().GetName(), dir, stateName(vm.GetStatus().GetState()))
		return nil
	}
	return cmd
}

func (a *imageCommands) nameThenDir() cobra.CompletionFunc {
	names := a.completeNames(running, false)
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return names(cmd, args, prefix)
	}
}
