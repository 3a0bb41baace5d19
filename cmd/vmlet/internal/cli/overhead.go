package cli

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/overhead"
	vmmstandard "github.com/vmlet/vmlet/vmm/standard"

	"github.com/spf13/cobra"
)

// overheadFlags are what the cost depends on beside the specification.
type overheadFlags struct {
	hypervisor, vmm, arch, fixed, config string
	ratio                                float64
}

// overheadNode is a node as far as costs depend on it.
type overheadNode struct {
	known *hypervisor.Local
	vmms  *vmm.Registry
	// standard is what "auto" stands for: a name, or "auto" for the first that works.
	standard string
	// fixed is the administrator's figure, in bytes; 0: none.
	fixed uint64
}

// node reads the configuration and the flag that goes before it.
func (f overheadFlags) node(roots sysfs.Roots) (*overheadNode, error) {
	cfg, err := sources.Load(f.config)
	if err != nil {
		return nil, err
	}
	s := cfg.Sources(sources.Options{Roots: roots})
	n := &overheadNode{known: s.Hypervisors, vmms: vmmstandard.Registry()}
	n.standard, _ = n.known.Default(s.DefaultHypervisor) // probe warns of an unknown one
	if f.hypervisor != "" {
		n.standard = f.hypervisor
	}
	n.fixed, _ = cfg.VirtualizationProfile.Overhead()
	if f.fixed != "" {
		if n.fixed, err = spec.ParseQuantity(f.fixed); err != nil {
			return nil, usagef("--fixed: %w", err)
		}
	}
	return n, nil
}

func (a *nodeCommands) overheadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overhead -f FILE",
		Short: "Say what a machine costs beside its memory",
		Long: `Say what a machine costs beside its memory, part by part, and what a pod with it
would request. No agent is needed, and nothing is started.

REQUEST is what is used ordinarily, LIMIT the most that it can come to: they
differ under emulation, which keeps the code that it has translated. BASIS says
how a figure came about: measured, calculated, estimated or configured.`,
		Example: "  vmlet overhead -f web-1.yaml\n  vmlet overhead -f web-1.yaml --hypervisor emulation -o json",
		Args:    arguments(0, 0),
	}
	var file string
	var f overheadFlags
	flags := cmd.Flags()
	flags.StringVarP(&file, "file", "f", "", "the specification's `FILE`, - for standard input")
	flags.StringVar(&f.hypervisor, "hypervisor", "", "`NAME` of the one that the machine runs under, where its specification says auto (default: what this node would choose)")
	flags.StringVar(&f.config, "config", "", "the agent's configuration `FILE`, YAML: its hypervisor and its virtLauncherOverhead count")
	flags.StringVar(&f.vmm, "vmm", spec.VMMQEMU, "`NAME` of the VMM, where its specification says auto")
	flags.StringVar(&f.arch, "arch", runtime.GOARCH, "the machine's architecture: amd64, arm64")
	flags.Float64Var(&f.ratio, "ratio", 1, "multiply the sum by this `FACTOR`")
	flags.StringVar(&f.fixed, "fixed", "", "a `SIZE` that stands in place of all parts, such as 220Mi (an administrator's virtLauncherOverhead)")
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML)
	roots := rootFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return usagef("which specification? -f FILE is wanted")
		}
		s, err := a.readSpec(cmd.Context(), file)
		if err != nil {
			return err
		}
		n, err := f.node(*roots)
		if err != nil {
			return err
		}
		b, err := n.overhead(cmd.Context(), s, f)
		if err != nil {
			return err
		}
		if format.Value != output.Table {
			return output.Document(a.Stdout, format.Value, podOverhead{b, b.PodRequest(), b.PodLimit()})
		}
		return a.printOverhead(b)
	}
	return cmd
}

// podOverhead adds what a pod would ask for, in bytes.
type podOverhead struct {
	*overhead.Breakdown
	PodRequest uint64 `json:"podRequest"`
	PodLimit   uint64 `json:"podLimit"`
}

// overhead completes the specification as an agent would, and adds up.
func (n *overheadNode) overhead(ctx context.Context, s *specv1.VirtualMachineSpec, f overheadFlags) (*overhead.Breakdown, error) {
	if f.arch != spec.ArchAMD64 && f.arch != spec.ArchARM64 {
		return nil, usagef("--arch: %.40q is not known: want %s or %s", f.arch, spec.ArchAMD64, spec.ArchARM64)
	}
	if err := n.known.Validate(s, f.arch, n.vmms.Names()...).Err(); err != nil {
		return nil, err
	}
	h, err := n.hypervisor(ctx, s.GetHypervisor())
	if err != nil {
		return nil, err
	}
	v, known := n.vmms.Get(n.vmm(s.GetVmm(), f.vmm))
	if !known {
		return nil, fmt.Errorf("--vmm: %.40q is not known: want %s", f.vmm, strings.Join(n.vmms.Names(), " or "))
	}
	target := spec.Target{ID: "overhead", Hypervisor: h.Name(), VMM: v.Name(), Arch: f.arch, Defaults: vmm.DefaultsOf(v, f.arch)}
	s = spec.Default(s, target, n.known.Layers())
	if err := n.known.Validate(s, f.arch, n.vmms.Names()...).Err(); err != nil {
		return nil, err
	}
	return overhead.Of(overhead.Request{Spec: s, Hypervisor: h, VMM: v, Arch: f.arch, Ratio: f.ratio, Fixed: n.fixed})
}

// vmm is the name of the one that the specification names, else the flag's.
func (*overheadNode) vmm(specified, flag string) string {
	if specified == "" || specified == spec.Auto {
		return flag
	}
	return specified
}

// hypervisor is the one that the specification names, else the node's; only where that is "auto" is any tried.
func (n *overheadNode) hypervisor(ctx context.Context, specified string) (hypervisor.Hypervisor, error) {
	for _, name := range []string{specified, n.standard} {
		if name == "" || name == hypervisor.NameAuto {
			continue
		}
		h, ok := n.known.Get(name)
		if !ok {
			return nil, &hypervisor.UnknownError{Requested: name, Known: n.known.Names()}
		}
		return h, nil
	}
	h, _, err := n.known.Choose(ctx, hypervisor.NameAuto, nil)
	return h, err
}

func (a *nodeCommands) printOverhead(b *overhead.Breakdown) error {
	rows := [][]string{{"PART", "REQUEST", "LIMIT", "BASIS", "NOTE"}}
	for _, p := range b.Parts {
		rows = append(rows, []string{p.Name, output.Bytes(p.Bytes), output.Bytes(p.Limit), string(p.Basis), p.Note})
	}
	rows = append(rows, []string{"total", output.Bytes(b.Total), output.Bytes(b.Limit), "", fmt.Sprintf("%s with %s on %s", b.Hypervisor, b.VMM, b.Arch)})
	if err := output.Columns(a.Stdout, rows); err != nil {
		return err
	}
	a.printf("\nA pod requests memory: %s, and its limit is at least %s.\n", spec.FormatQuantity(b.PodRequest()), spec.FormatQuantity(b.PodLimit()))
	if b.HugePages != 0 {
		a.printf("Beside it, hugepages-%s: %s.\n", spec.FormatQuantity(b.HugePages), spec.FormatQuantity(b.Memory))
	}
	return nil
}
