package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/machineflags"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/standard"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	vmmstandard "github.com/vmlet/vmlet/vmm/standard"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// runOptions are the flags of `run` that do not describe the machine.
type runOptions struct {
	file                   string
	detach, remove, dryRun bool
	escape                 *string
}

func (a *lifeCommands) runCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [NAME]",
		Short: "Make a machine and boot it, with its console here",
		Long: `Make a machine, boot it and connect its console with this terminal until it
ends; ^] leaves it running. Exits with 1 if the machine crashed.

` + machineflags.Syntax + `

With -f the flags are added to a specification: single values replace its own,
disks, networks and labels are added to them.`,
		Example: `  vmlet run tiny --kernel vmlinuz --initrd initrd.img --cmdline console=ttyS0 --rm
  vmlet run web-1 --disk web.qcow2,format=qcow2 --cloud-init user-data \
    --memory 2Gi --cpus 2 --net user,hostfwd=tcp:127.0.0.1:2222:22 --detach
  vmlet run -f web-1.yaml --name web-2 --dry-run`,
		Args:              arguments(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	var machine machineflags.Flags
	var opts runOptions
	flags := cmd.Flags()
	flags.SortFlags = false
	machine.Register(flags, standard.Registry().Names(), vmmstandard.Registry().Names())
	flags.StringVarP(&opts.file, "file", "f", "", "begin with the specification in this `FILE`, - for standard input")
	flags.BoolVarP(&opts.detach, "detach", "d", false, "do not connect the console")
	flags.BoolVar(&opts.remove, "rm", false, "delete the machine when it has ended")
	flags.BoolVar(&opts.dryRun, "dry-run", false, "print the specification as YAML and make nothing")
	opts.escape = escapeFlag(cmd)
	completeMachineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if opts.detach && opts.remove {
			return usagef("--rm needs someone who waits for the end: it cannot be with --detach")
		}
		s, err := a.runSpec(cmd, &machine, opts, args)
		if err != nil {
			return err
		}
		if opts.dryRun {
			b, err := spec.Marshal(s)
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(b)
			return err
		}
		key, err := a.escapeKey(cmd, *opts.escape)
		if err != nil {
			return err
		}
		return a.run(cmd.Context(), s, opts, key)
	}
	return cmd
}

func completeMachineFlags(cmd *cobra.Command) {
	fixed(cmd, "hypervisor", append([]string{hypervisor.NameAuto}, standard.Registry().Names()...)...)
	fixed(cmd, "vmm", append([]string{spec.Auto}, vmmstandard.Registry().Names()...)...)
	fixed(cmd, "firmware", "bios", "uefi")
	fixed(cmd, "net", "user", "tap=", "bridge=", "none")
	for _, flag := range []string{"name", "label", "memory", "cpus", "cpu-model", "machine", "cmdline", "escape"} {
		fixed(cmd, flag)
	}
}

// runSpec puts the specification together.
func (a *lifeCommands) runSpec(cmd *cobra.Command, machine *machineflags.Flags, opts runOptions, args []string) (*specv1.VirtualMachineSpec, error) {
	base := &specv1.VirtualMachineSpec{}
	if opts.file != "" {
		var err error
		if base, err = a.readSpec(cmd.Context(), opts.file); err != nil {
			return nil, err
		}
	}
	s, err := machine.Apply(base, cmd.Flags())
	if errors.As(err, new(*fs.PathError)) {
		return nil, err // a file's fault, not the command line's
	}
	if err != nil {
		return nil, usageError{err}
	}
	if len(args) > 0 {
		if cmd.Flags().Changed("name") && s.Name != args[0] {
			return nil, usagef("two names, %q and --name %q: one is wanted", args[0], s.Name)
		}
		s.Name = args[0]
	}
	if s.Name == "" {
		return nil, usagef("the machine needs a name: vmlet run NAME")
	}
	return s, nil
}

func (a *lifeCommands) run(ctx context.Context, s *specv1.VirtualMachineSpec, opts runOptions, key terminal.Escape) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if err := a.createAndStart(ctx, c, s); err != nil {
		return err
	}
	if opts.detach {
		a.printf("%s started\n", s.Name)
		return nil
	}
	left, err := a.attach(ctx, c, s.Name, key)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s runs on; to end it: vmlet stop %s", s.Name, s.Name)
	case left:
		a.notef("Left the console of %s, which runs on.", s.Name)
		return nil
	case status.Code(err) == codes.FailedPrecondition:
		// It has no console, or has ended already: what it wrote is kept.
		if err := copyLogs(ctx, a.Stdout, c, &nodev1.ReadLogsRequest{Name: s.Name, Log: "console"}); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	return a.afterEnd(ctx, c, s.Name, opts.remove)
}

// createAndStart leaves no machine behind that never ran.
func (a *lifeCommands) createAndStart(ctx context.Context, c *client, s *specv1.VirtualMachineSpec) error {
	created, err := c.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: s})
	if err != nil {
		return err
	}
	_, err = a.start(ctx, c, &nodev1.StartVMRequest{Name: s.Name})
	if err == nil || created.GetVm().GetStatus().GetState() != nodev1.State_STATE_CREATED {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), secondChance)
	defer cancel()
	now, getErr := c.GetVM(ctx, &nodev1.GetVMRequest{Name: s.Name})
	if getErr != nil || now.GetVm().GetStatus().GetState() != nodev1.State_STATE_CREATED {
		return err
	}
	if _, delErr := c.DeleteVM(ctx, &nodev1.DeleteVMRequest{Name: s.Name}); delErr != nil {
		return failures{err, delErr}
	}
	return err
}

// afterEnd waits until the machine has ended and says how.
func (a *lifeCommands) afterEnd(ctx context.Context, c *client, name string, remove bool) error {
	vm, err := a.waitState(ctx, c, name, startable)
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %s runs on; to end it: vmlet stop %s", name, name)
	}
	if err != nil {
		return err
	}
	state := vm.GetStatus().GetState()
	if state == nodev1.State_STATE_CRASHED {
		err = &crashError{name, vm.GetStatus().GetMessage(), !remove}
	}
	if state == nodev1.State_STATE_SAVED {
		a.notef("%s was saved to %s: vmlet start %s lets it go on.", name, vm.GetStatus().GetImage().GetPath(), name)
		return nil
	}
	if remove {
		if _, delErr := c.DeleteVM(ctx, &nodev1.DeleteVMRequest{Name: name}); delErr != nil {
			return joined(err, delErr)
		}
	}
	return err
}

// crashError: the machine did not end as it should.
type crashError struct {
	name, message string
	hasLogs       bool
}

func (e *crashError) Error() string {
	s := fmt.Sprintf("vm %q crashed", e.name)
	if e.message != "" {
		s += ": " + e.message
	}
	if e.hasLogs {
		s += " (see: vmlet logs --vmm " + e.name + ")"
	}
	return s
}
