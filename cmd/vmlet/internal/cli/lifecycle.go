package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// atOnce is how many machines are stopped at the same time: stopping is mostly
// waiting for guests.
const atOnce = 16

// lifeCommands run VMs and end them.
type lifeCommands struct{ *agent }

// action does something to one machine and returns the word for it.
type action func(ctx context.Context, c *client, name string) (done string, err error)

// each does it to every name, up to parallel of them at a time, and tells what
// was done in the order of the names. It goes on after a failure.
func (a *lifeCommands) each(ctx context.Context, names []string, parallel int, do action) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	type result struct {
		done string
		err  error
	}
	results := make([]chan result, len(names))
	slots := make(chan struct{}, parallel)
	for i := range results {
		results[i] = make(chan result, 1)
	}
	go func() {
		for i, name := range names {
			slots <- struct{}{}
			go func() {
				done, err := do(ctx, c, name)
				results[i] <- result{done, err}
				<-slots
			}()
		}
	}()
	var failed failures
	for i, name := range names {
		r := <-results[i]
		if r.err != nil {
			failed = append(failed, r.err)
			continue
		}
		a.printf("%s %s\n", name, r.done)
	}
	return failed.orNil()
}

// eachOf is each of a command's names.
func (a *lifeCommands) eachOf(parallel int, do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, names []string) error { return a.each(cmd.Context(), names, parallel, do) }
}

// machineCmd is a command with one or more names.
func (a *lifeCommands) machineCmd(verb, short, example string, complete func(nodev1.State) bool) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME...",
		Short:             short,
		Example:           example,
		Args:              arguments(1, math.MaxInt),
		ValidArgsFunction: a.completeNames(complete, true),
	}
}

func (a *lifeCommands) startCmd() *cobra.Command {
	cmd := a.machineCmd("start", "Boot machines; one that is saved goes on where it was",
		"  vmlet start web-1\n  vmlet start --cold web-1   # forget the saved memory", startable)
	var req nodev1.StartVMRequest
	cmd.Flags().BoolVar(&req.Cold, "cold", false, "boot afresh though the machine is saved; its image stays, but is no longer its")
	cmd.Flags().BoolVar(&req.Paused, "paused", false, "do not let the guest run yet: resume does")
	cmd.RunE = a.eachOf(1, func(ctx context.Context, c *client, name string) (string, error) {
		_, err := a.start(ctx, c, &nodev1.StartVMRequest{Name: name, Cold: req.Cold, Paused: req.Paused})
		return "started", err
	})
	return cmd
}

// start starts a machine, showing the progress of a restore.
func (a *lifeCommands) start(ctx context.Context, c *client, req *nodev1.StartVMRequest) (*nodev1.VirtualMachine, error) {
	stream, err := c.StartVM(ctx, req)
	if err != nil {
		return nil, err
	}
	last, err := followProgress(stream, a.newProgress("start "+req.Name))
	if err != nil && ctx.Err() != nil {
		err = a.afterInterruptedStart(context.WithoutCancel(ctx), c, req.Name)
	}
	if err == nil {
		a.noteDegraded(ctx, c, last.GetVm())
	}
	return last.GetVm(), err
}

// noteDegraded tells the user that the guest may be slow or not boot, and says nothing where
// the agent doesn't answer: the VM is started in any case.
func (a *lifeCommands) noteDegraded(ctx context.Context, c *client, vm *nodev1.VirtualMachine) {
	name := vm.GetStatus().GetHypervisor()
	if name == "" || name == hypervisor.NameEmulation {
		return
	}
	node, err := c.GetNode(ctx, &nodev1.GetNodeRequest{})
	if err != nil {
		return
	}
	for _, h := range node.GetHypervisors() {
		if h.GetName() == name && h.GetState() == capabilitiesv1.State_STATE_DEGRADED {
			a.notef("vmlet: %s runs under %s, which is degraded on this node, and may be slow or not boot: see vmlet probe", nameOf(vm), name)
		}
	}
}

// afterInterruptedStart says what became of the machine.
func (a *lifeCommands) afterInterruptedStart(ctx context.Context, c *client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, secondChance)
	defer cancel()
	vm, err := a.waitState(ctx, c, name, func(s nodev1.State) bool {
		return s != nodev1.State_STATE_STARTING && s != nodev1.State_STATE_RESTORING
	})
	if err != nil {
		return fmt.Errorf("start of %q interrupted; what became of it could not be learned: see vmlet list", name)
	}
	return fmt.Errorf("start of %q interrupted: it is %s", name, stateName(vm.GetStatus().GetState()))
}

func (a *lifeCommands) stopCmd() *cobra.Command {
	cmd := a.machineCmd("stop", "Press the power button, kill after a grace period",
		"  vmlet stop web-1 web-2\n  vmlet stop --grace 2m db-1", running)
	grace := cmd.Flags().Duration("grace", 0, "how long the guest may take (default: what the specification says, else 30s)")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		var ms *int64
		if cmd.Flags().Changed("grace") {
			if *grace < 0 {
				return usagef("--grace %v: less than nothing", *grace)
			}
			n := grace.Milliseconds()
			ms = &n
		}
		return a.each(cmd.Context(), names, atOnce, func(ctx context.Context, c *client, name string) (string, error) {
			r, err := c.StopVM(ctx, &nodev1.StopVMRequest{Name: name, GracePeriodMs: ms})
			if err != nil && ctx.Err() != nil {
				return "", fmt.Errorf("stop of %q interrupted: if the guest was asked already, it goes on shutting down, and is killed when its grace period is over: see vmlet list", name)
			}
			if r.GetKilled() {
				return "killed: the guest did not shut down within its grace period", err
			}
			return ended(r.GetVm(), "stopped"), err
		})
	}
	return cmd
}

func (a *lifeCommands) killCmd() *cobra.Command {
	cmd := a.machineCmd("kill", "End machines at once, as if the power failed", "  vmlet kill web-1", running)
	cmd.RunE = a.eachOf(atOnce, func(ctx context.Context, c *client, name string) (string, error) {
		r, err := c.KillVM(ctx, &nodev1.KillVMRequest{Name: name})
		return ended(r.GetVm(), "killed"), err
	})
	return cmd
}

// ended is the word for what was done to a machine that was to end; for one
// without a process, that nothing was done.
func ended(vm *nodev1.VirtualMachine, done string) string {
	switch state := vm.GetStatus().GetState(); state {
	case nodev1.State_STATE_CREATED, nodev1.State_STATE_SAVED:
		return "is " + stateName(state) + ": nothing of it ran"
	}
	return done
}

func (a *lifeCommands) pauseCmd() *cobra.Command {
	cmd := a.machineCmd("pause", "Halt guests; their memory stays", "  vmlet pause web-1", running)
	cmd.RunE = a.eachOf(atOnce, func(ctx context.Context, c *client, name string) (string, error) {
		_, err := c.PauseVM(ctx, &nodev1.PauseVMRequest{Name: name})
		return "paused", err
	})
	return cmd
}

func (a *lifeCommands) resumeCmd() *cobra.Command {
	cmd := a.machineCmd("resume", "Let paused guests go on", "  vmlet resume web-1", paused)
	damaged := cmd.Flags().Bool("allow-damaged", false, "also one whose memory is mapped from an image that is damaged: what it reads is wrong")
	cmd.RunE = a.eachOf(atOnce, func(ctx context.Context, c *client, name string) (string, error) {
		_, err := c.ResumeVM(ctx, &nodev1.ResumeVMRequest{Name: name, AllowDamaged: *damaged})
		return "resumed", err
	})
	return cmd
}

func (a *lifeCommands) resetCmd() *cobra.Command {
	cmd := a.machineCmd("reset", "Press the reset button: guests boot again at once", "  vmlet reset web-1", running)
	cmd.RunE = a.eachOf(atOnce, func(ctx context.Context, c *client, name string) (string, error) {
		_, err := c.ResetVM(ctx, &nodev1.ResetVMRequest{Name: name})
		return "reset", err
	})
	return cmd
}

func (a *lifeCommands) deleteCmd() *cobra.Command {
	cmd := a.machineCmd("delete", "Forget machines; their disks and images stay",
		"  vmlet delete web-1\n  vmlet delete --force web-1   # even if it runs", nil)
	cmd.Aliases = []string{"rm"}
	force := cmd.Flags().Bool("force", false, "kill the machine first if it runs")
	cmd.RunE = a.eachOf(atOnce, func(ctx context.Context, c *client, name string) (string, error) {
		if *force {
			// That it does not run is what is wanted.
			_, err := c.KillVM(ctx, &nodev1.KillVMRequest{Name: name})
			if err != nil && status.Code(err) != codes.FailedPrecondition {
				return "", err
			}
		}
		_, err := c.DeleteVM(ctx, &nodev1.DeleteVMRequest{Name: name})
		return "deleted", err
	})
	return cmd
}

// secondChance bounds what is asked after the user has interrupted a command.
const secondChance = 10 * time.Second
