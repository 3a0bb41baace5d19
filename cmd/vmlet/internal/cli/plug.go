package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// deviceCommands change the devices and the size of VMs.
type deviceCommands struct{ *agent }

// changeable tells the states in which a machine's devices and size can be changed.
func changeable(s nodev1.State) bool {
	switch s {
	case nodev1.State_STATE_STARTING, nodev1.State_STATE_SAVING, nodev1.State_STATE_SAVED,
		nodev1.State_STATE_RESTORING, nodev1.State_STATE_STOPPING:
		return false
	}
	return true
}

func (a *deviceCommands) resizeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resize NAME [--vcpus NUMBER] [--memory QUANTITY]",
		Short: "Change how many vCPUs and how much memory a machine has",
		Long: `Change how many vCPUs and how much memory a machine has. While it runs, vCPUs
come and go, up to cpu.maxVcpus of its specification, and its balloon gives it
less memory than memory.size, or all of that again; the guest has to agree. One
that does not run has the new size from its next start on.`,
		Example:           "  vmlet resize web-1 --vcpus 4\n  vmlet resize web-1 --memory 512Mi",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNames(changeable, false),
	}
	var req nodev1.ResizeVMRequest
	cmd.Flags().Uint32Var(&req.Vcpus, "vcpus", 0, "`NUMBER` of vCPUs")
	cmd.Flags().StringVar(&req.Memory, "memory", "", "what the guest is to have, a Kubernetes `QUANTITY`: 512Mi, 4Gi")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("vcpus") && !cmd.Flags().Changed("memory"):
			return usagef("to which size? --vcpus or --memory is wanted")
		case cmd.Flags().Changed("vcpus") && req.Vcpus == 0:
			return usagef("--vcpus 0: a machine has one at least")
		}
		if _, err := spec.ParseQuantity(req.Memory); cmd.Flags().Changed("memory") && err != nil {
			return usagef("--memory: %v", err)
		}
		c, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		r, err := c.ResizeVM(cmd.Context(), &nodev1.ResizeVMRequest{Name: args[0], Vcpus: req.Vcpus, Memory: req.Memory})
		if err != nil {
			return err
		}
		a.printf("%s resized%s\n", args[0], resized(&req, r))
		return nil
	}
	return cmd
}

// resized says what the guest has made of it.
func resized(req *nodev1.ResizeVMRequest, r *nodev1.ResizeVMResponse) string {
	switch {
	case !running(r.GetVm().GetStatus().GetState()):
		return ", from its next start on"
	case req.Memory != "" && r.MemoryBytes != nil && r.GetMemoryBytes() > wantedMemory(req):
		return fmt.Sprintf("; the guest has %s of memory still: while it runs it gives back what it can spare, by its balloon driver (virtio_balloon); the same command again says how far it is",
			output.Bytes(r.GetMemoryBytes()))
	case req.Memory != "" && r.MemoryBytes != nil:
		return fmt.Sprintf("; the guest has %s of memory now", output.Bytes(r.GetMemoryBytes()))
	}
	return ""
}

// wantedMemory is in bytes; the quantity was checked before.
func wantedMemory(req *nodev1.ResizeVMRequest) uint64 {
	n, _ := spec.ParseQuantity(req.GetMemory())
	return n
}

func (a *deviceCommands) attachCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach",
		Short: "Give a machine one more disk or network interface",
		Long: `Give a machine one more disk or network interface: at once if it runs, from its
next start on if it does not. Its specification changes with it, and so does
what a save writes down.`,
		Example: "  vmlet attach disk web-1 /srv/disks/data.img --name data\n  vmlet attach network web-1 --tap-bridge br0",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args:    unknownCommand,
	}
	cmd.AddCommand(a.attachDiskCmd(), a.attachNetworkCmd())
	return cmd
}

func (a *deviceCommands) attachDevice(ctx context.Context, req *nodev1.AttachRequest) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	r, err := c.Attach(ctx, req)
	if err != nil {
		return err
	}
	a.printf("%s attached to %s%s\n", r.GetDevice(), req.Name, fromNextStart(r.GetVm()))
	return nil
}

// fromNextStart is added to what was done to a machine that does not run.
func fromNextStart(vm *nodev1.VirtualMachine) string {
	if running(vm.GetStatus().GetState()) {
		return ""
	}
	return ", from its next start on"
}

func (a *deviceCommands) attachDiskCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "disk NAME PATH",
		Short:   "Give a machine one more disk",
		Example: "  vmlet attach disk web-1 /dev/vg0/data --name data\n  vmlet attach disk web-1 top.qcow2 --format qcow2 --backing qcow2:base.qcow2",
		Args:    arguments(2, 2),
	}
	names := a.completeNames(changeable, false)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return names(cmd, args, prefix)
	}
	var d specv1.Disk
	var backing []string
	flags := cmd.Flags()
	flags.StringVar(&d.Name, "name", "", "the disk's `NAME`, unique in the machine (default: diskN)")
	flags.StringVar(&d.Format, "format", "", "`FORMAT`: raw (the default) or qcow2")
	flags.StringVar(&d.Bus, "bus", "", "`BUS`: virtio (the default) or scsi, which a machine has that was started with a SCSI disk")
	flags.BoolVar(&d.ReadOnly, "read-only", false, "the guest can't write to it")
	flags.StringVar(&d.Cache, "cache", "", "`MODE`: none (the default), writeback, writethrough or unsafe")
	flags.StringVar(&d.Serial, "serial", "", "`SERIAL` number that the guest sees, 20 characters at most")
	flags.StringArrayVar(&backing, "backing", nil, "a qcow2's backing file, `FORMAT:PATH`, the nearest first (may be repeated)")
	fixed(cmd, "format", spec.FormatRaw, spec.FormatQCOW2)
	fixed(cmd, "bus", spec.BusVirtio, spec.BusSCSI)
	fixed(cmd, "cache", spec.CacheNone, spec.CacheWriteback, spec.CacheWritethrough, spec.CacheUnsafe)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if d.Path, err = pathArgument("PATH", args[1]); err != nil {
			return err
		}
		for _, b := range backing {
			format, path, _ := strings.Cut(b, ":")
			if format == "" || path == "" {
				return usagef("--backing %s: FORMAT:PATH is wanted", b)
			}
			if path, err = filepath.Abs(path); err != nil {
				return err
			}
			d.BackingFiles = append(d.BackingFiles, &specv1.BackingFile{Format: format, Path: path})
		}
		return a.attachDevice(cmd.Context(), &nodev1.AttachRequest{Name: args[0], Device: &nodev1.AttachRequest_Disk{Disk: &d}})
	}
	return cmd
}

func (a *deviceCommands) attachNetworkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "network NAME {--tap-bridge BRIDGE | --tap-device DEVICE | --user}",
		Short:             "Give a machine one more network interface",
		Example:           "  vmlet attach network web-1 --tap-bridge br0 --name lan\n  vmlet attach network web-1 --tap-device tap7 --mac 52:54:00:12:34:56",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNames(changeable, false),
	}
	var n specv1.NetworkInterface
	var tap specv1.TapNetwork
	var user bool
	flags := cmd.Flags()
	flags.StringVar(&tap.Bridge, "tap-bridge", "", "make a tap and attach it to this `BRIDGE`")
	flags.StringVar(&tap.Device, "tap-device", "", "use this tap `DEVICE`")
	flags.BoolVar(&user, "user", false, "the VMM's own NAT")
	flags.StringVar(&n.Name, "name", "", "the interface's `NAME`, unique in the machine (default: netN)")
	flags.StringVar(&n.Mac, "mac", "", "the interface's `ADDRESS` (default: made from the machine's id)")
	flags.StringVar(&n.Model, "model", "", "`MODEL`: virtio (the default) or e1000e")
	fixed(cmd, "model", spec.NetVirtio, spec.NetE1000E)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kinds := 0
		for _, given := range []bool{tap.Bridge != "", tap.Device != "", user} {
			if given {
				kinds++
			}
		}
		if kinds != 1 {
			return usagef("to what is it connected? One of --tap-bridge, --tap-device and --user is wanted")
		}
		n.Backend = &specv1.NetworkInterface_Tap{Tap: &tap}
		if user {
			n.Backend = &specv1.NetworkInterface_User{User: &specv1.UserNetwork{}}
		}
		return a.attachDevice(cmd.Context(), &nodev1.AttachRequest{Name: args[0], Device: &nodev1.AttachRequest_Network{Network: &n}})
	}
	return cmd
}

func (a *deviceCommands) detachCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "detach NAME DEVICE",
		Short: "Take a disk or network interface from a machine",
		Long: `Take a disk or network interface from a machine, by its name in the
specification: at once if the machine runs and the guest lets it go, from its
next start on if it does not run.`,
		Example: "  vmlet detach web-1 data",
		Args:    arguments(2, 2),
	}
	names := a.completeNames(changeable, false)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return a.deviceNames(cmd.Context(), args[0]), cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, args, prefix)
	}
	cmd.RunE = a.connected(func(ctx context.Context, c *client, args []string) error {
		r, err := c.Detach(ctx, &nodev1.DetachRequest{Name: args[0], Device: args[1]})
		if err != nil {
			return err
		}
		a.printf("%s detached from %s%s\n", args[1], args[0], fromNextStart(r.GetVm()))
		return nil
	})
	return cmd
}

// deviceNames are those of a machine's disks and interfaces, for completion.
func (a *deviceCommands) deviceNames(ctx context.Context, name string) []cobra.Completion {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	c, err := a.connectWithin(ctx, 0)
	if err != nil {
		return nil
	}
	r, err := c.GetVM(ctx, &nodev1.GetVMRequest{Name: name})
	if err != nil {
		return nil
	}
	s := r.GetVm().GetSpec()
	if running(r.GetVm().GetStatus().GetState()) {
		s = r.GetVm().GetStatus().GetEffectiveSpec()
	}
	var names []cobra.Completion
	for _, d := range s.GetDisks() {
		names = append(names, cobra.CompletionWithDesc(d.GetName(), d.GetPath()))
	}
	for _, n := range s.GetNetworks() {
		names = append(names, cobra.CompletionWithDesc(n.GetName(), n.GetMac()))
	}
	return slices.DeleteFunc(names, func(name cobra.Completion) bool { return strings.HasPrefix(name, "\t") || name == "" })
}
