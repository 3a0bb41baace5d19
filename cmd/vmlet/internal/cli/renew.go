package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

func (a *lifeCommands) renewCmd() *cobra.Command {
	cmd := a.machineCmd("renew", "Hand running guests over to a new process of their VMM", "  vmlet renew web-1", running)
	cmd.Long = `Start the VMM's program as it is installed now, beside the running one, and hand the
guest over to it, for example after an upgrade of QEMU. The guest is stopped for some
milliseconds. If the renewal fails, the guest continues where it was.`
	cmd.RunE = a.eachOf(1, func(ctx context.Context, c *client, name string) (string, error) {
		r, err := c.RenewVM(ctx, &nodev1.RenewVMRequest{Name: name})
		return renewed(r), err
	})
	return cmd
}

// renewed says what a renewal has done.
func renewed(r *nodev1.RenewVMResponse) string {
	result, vmm := r.GetResult(), r.GetVm().GetStatus().GetVmm().GetName()
	stopped := (time.Duration(result.GetStoppedUs()) * time.Microsecond).Round(100 * time.Microsecond)
	text := fmt.Sprintf("renewed: %s %s (before: %s); the guest was stopped for %v", vmm, result.GetVersion(), result.GetVersionBefore(), stopped)
	if w := result.GetWarning(); w != "" {
		text += "; " + w
	}
	return text
}
