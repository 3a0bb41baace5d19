package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// lookCommands show VMs, and what they write.
type lookCommands struct{ *agent }

func (a *lookCommands) listCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ps", "ls"},
		Short:   "List the machines",
		Long:    "List the machines. On a terminal, messages end where it does: -o wide and get have them whole.",
		Example: "  vmlet list -o wide\n  vmlet stop $(vmlet list -l app=web -o name)",
		Args:    arguments(0, 0),
	}
	format := outputFlag(cmd, output.Table, output.Wide, output.JSON, output.YAML, output.Name)
	selector := cmd.Flags().StringP("selector", "l", "", "only machines with these `LABELS`: a=b,c!=d,e")
	cmd.RunE = a.connected(func(ctx context.Context, c *client, _ []string) error {
		r, err := c.ListVMs(ctx, &nodev1.ListVMsRequest{LabelSelector: *selector})
		if err != nil {
			return err
		}
		return a.printMachines(format.Value, r.GetVms())
	})
	return cmd
}

func (a *lookCommands) getCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show all that is known of a machine",
		Example:           "  vmlet get web-1\n  vmlet get web-1 -o json | jq .status",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNames(nil, false),
	}
	format := outputFlag(cmd, output.YAML, output.JSON, output.Table, output.Wide, output.Name)
	cmd.RunE = a.connected(func(ctx context.Context, c *client, args []string) error {
		r, err := c.GetVM(ctx, &nodev1.GetVMRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if format.Value == output.JSON || format.Value == output.YAML {
			return output.Message(a.Stdout, format.Value, r.GetVm())
		}
		return a.printMachines(format.Value, []*nodev1.VirtualMachine{r.GetVm()})
	})
	return cmd
}

func (a *lookCommands) printMachines(format output.Format, vms []*nodev1.VirtualMachine) error {
	switch format {
	case output.JSON, output.YAML:
		return output.List(a.Stdout, format, "vms", vms)
	case output.Name:
		for _, vm := range vms {
			a.printf("%s\n", nameOf(vm))
		}
		return nil
	}
	wide := format == output.Wide
	rows := [][]string{machineHeader(wide)}
	for _, vm := range vms {
		rows = append(rows, a.machineRow(vm, wide))
	}
	if wide {
		return output.Columns(a.Stdout, rows)
	}
	return output.Clipped(a.Stdout, rows, terminal.Width(a.Stdout))
}

func machineHeader(wide bool) []string {
	h := []string{"NAME", "STATE", "VMM", "HYPERVISOR", "CPUS", "MEMORY", "AGE"}
	if wide {
		h = append(h, "UPTIME", "VMM-PID", "UID", "ID", "IMAGE", "LABELS")
	}
	return append(h, "MESSAGE")
}

func (a *lookCommands) machineRow(vm *nodev1.VirtualMachine, wide bool) []string {
	spec, st := vm.GetStatus().GetEffectiveSpec(), vm.GetStatus()
	if spec == nil {
		spec = vm.GetSpec()
	}
	row := []string{
		nameOf(vm), stateName(st.GetState()),
		strings.TrimSpace(st.GetVmm().GetName() + " " + st.GetVmm().GetVersion()),
		st.GetHypervisor(), cpuCount(spec.GetCpu()), spec.GetMemory().GetSize(), "",
	}
	if t := st.GetCreatedAt(); t != nil {
		row[6] = output.Age(t.AsTime(), a.Now())
	}
	if wide {
		row = append(row, a.wideCells(vm)...)
	}
	return append(row, st.GetMessage())
}

func (a *lookCommands) wideCells(vm *nodev1.VirtualMachine) []string {
	st := vm.GetStatus()
	var uptime, pid, uid string
	if p := st.GetProcess(); p.GetVmmPid() != 0 {
		pid, uid = strconv.FormatInt(p.GetVmmPid(), 10), strconv.FormatUint(uint64(p.GetUid()), 10)
		if t := st.GetStartedAt(); t != nil {
			uptime = output.Age(t.AsTime(), a.Now())
		}
	}
	return []string{uptime, pid, uid, vm.GetId(), st.GetImage().GetPath(), labels(vm.GetSpec().GetLabels())}
}

// cpuCount returns sockets × cores × threads, each 1 if unset.
func cpuCount(c *specv1.CPU) string {
	n := uint64(1)
	for _, f := range []uint32{c.GetSockets(), c.GetCores(), c.GetThreads()} {
		n *= uint64(max(f, 1))
	}
	return strconv.FormatUint(n, 10)
}
