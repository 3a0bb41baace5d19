// Package sources says where the document of capabilities comes from: it makes
// capabilities.Sources of the part of the configuration that every program on the node
// reads. It knows nothing of the agent. Start at Config.Sources.
package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/hypervisor/standard"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/internal/strictyaml"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	chprobe "github.com/vmlet/vmlet/vmm/cloudhypervisor/probe"
	"github.com/vmlet/vmlet/vmm/profile"
	qemuprobe "github.com/vmlet/vmlet/vmm/qemu/probe"
	"github.com/vmlet/vmlet/vmm/remote"
	vmmstandard "github.com/vmlet/vmlet/vmm/standard"
)

// DefaultStateDir is the state directory of an agent whose configuration names none.
const DefaultStateDir = "/var/lib/vmlet"

// Files that keep answers which take long to get.
const (
	capabilitiesFile = "capabilities.json"
	qemuFile         = "qemu.json"
)

// Config says which VMMs and hypervisors a node has, and what of it guests may be
// given. The zero Config, completed, is a good one.
type Config struct {
	QEMU            QEMU            `yaml:"qemu"`
	CloudHypervisor CloudHypervisor `yaml:"cloudHypervisor"`
	// Drivers are programs that speak the driver protocol, each for a VMM that vmlet doesn't
	// know, or in place of one that it does.
	Drivers []Driver `yaml:"drivers"`

	// VMMs are their names in the order in which "auto" prefers them; those that it
	// doesn't have come after them. Default: vmlet's order, QEMU first.
	VMMs []string `yaml:"vmms"`
	// Hypervisor is that of specifications which name none; default: the first
	// that works, as "auto" has it. An unknown name is kvm, with a warning.
	Hypervisor string `yaml:"hypervisor"`
	// VirtualizationProfile names the parts of the stack; default: vmlet's own.
	VirtualizationProfile profile.Profile `yaml:"virtualizationProfile"`
	// ObsoleteCPUModels are not offered, as KubeVirt has them: true adds a model
	// to those that are obsolete by themselves (ObsoleteModels), false takes one away.
	ObsoleteCPUModels map[string]bool `yaml:"obsoleteCPUModels"`
	// PermittedHostDevices may be given to guests; default: none.
	PermittedHostDevices hostdevice.Permitted `yaml:"permittedHostDevices"`
}

// File is what the agent's configuration file says to programs beside the agent.
type File struct {
	Config `yaml:",inline"`
	// StateDir is the agent's, where it keeps its answers; default DefaultStateDir.
	StateDir string `yaml:"stateDir"`
	// Others are the agent's own keys, which it alone can judge.
	Others strictyaml.Others `yaml:",inline"`
}

// Load reads the agent's configuration file, and completes and validates what is
// in it for other programs. An empty path is the defaults.
func Load(path string) (File, error) {
	var f File
	if path != "" {
		if err := strictyaml.Load(path, &f); err != nil {
			return File{}, fmt.Errorf("the agent's configuration: %w", err)
		}
	}
	f.StateDir = cmp.Or(f.StateDir, DefaultStateDir)
	f.Config = f.Config.Complete()
	var errs []error
	fault := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("configuration: "+key+": "+format, args...))
	}
	checkPath(fault, "stateDir", f.StateDir)
	f.Validate(fault)
	return f, errors.Join(errs...)
}

// QEMU says which QEMU is used.
type QEMU struct {
	// Binary is its absolute path; default /usr/bin/qemu-system-ARCH.
	Binary string `yaml:"binary"`
}

// CloudHypervisor says which cloud-hypervisor is used.
type CloudHypervisor struct {
	// Binary is its absolute path; default: /usr/local/bin/cloud-hypervisor,
	// else that in /usr/bin.
	Binary string `yaml:"binary"`
	// Firmware is the absolute path of what boots VMs from their disks: the
	// program's own build of edk2 (CLOUDHV.fd), or rust-hypervisor-firmware.
	// Default: the first that is there of probe.DefaultFirmware.
	Firmware string `yaml:"firmware"`
}

// Driver is a program that speaks the driver protocol.
type Driver struct {
	// Name is the VMM's in specifications.
	Name string `yaml:"name"`
	// Program is its absolute path. Everybody who may run VMs runs it.
	Program string   `yaml:"program"`
	Args    []string `yaml:"args"`
}

// firmware is a list of one; nil: the default.
func (c CloudHypervisor) firmware() []string {
	if c.Firmware == "" {
		return nil
	}
	return []string{c.Firmware}
}

// Complete fills in the defaults.
func (c Config) Complete() Config {
	if c.QEMU.Binary == "" {
		c.QEMU.Binary = "/usr/bin/qemu-system-" + qemuArch(runtime.GOARCH)
	}
	if h, ok := c.VirtualizationProfile.Hypervisor(standard.Registry()); ok && c.Hypervisor == "" {
		c.Hypervisor = h
	}
	if v, ok := c.VirtualizationProfile.VMM(vmmstandard.Registry()); ok && len(c.VMMs) == 0 {
		c.VMMs = []string{v}
	}
	return c
}

// qemuArch is QEMU's name for one of Go's architectures.
func qemuArch(arch string) string {
	switch arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return arch
}

// Validate reports every fault of a completed configuration.
func (c Config) Validate(fault func(key, format string, args ...any)) {
	checkPath(fault, "qemu.binary", c.QEMU.Binary)
	checkPath(fault, "cloudHypervisor.binary", c.CloudHypervisor.Binary)
	checkPath(fault, "cloudHypervisor.firmware", c.CloudHypervisor.Firmware)
	known := c.VMMNames()
	for i, name := range c.VMMs {
		key := fmt.Sprintf("vmms[%d]", i)
		switch {
		case !slices.Contains(known, name):
			fault(key, "%.80q is no VMM: choose among %s", name, strings.Join(known, ", "))
		case slices.Contains(c.VMMs[:i], name):
			fault(key, "%s is listed twice", name)
		}
	}
	c.VirtualizationProfile.Validate(standard.Registry(), vmmstandard.Registry(), fault)
	c.PermittedHostDevices.Validate(fault)
	c.validateDrivers(fault)
}

func (c Config) validateDrivers(fault func(key, format string, args ...any)) {
	for i, d := range c.Drivers {
		key := fmt.Sprintf("drivers[%d]", i)
		if d.Program == "" {
			fault(key+".program", "it is missing: want the absolute path of a program that speaks the driver protocol")
		}
		checkPath(fault, key+".program", d.Program)
		if _, err := vmm.NewRegistry(remote.New(remote.Config{Name: d.Name})); err != nil {
			fault(key+".name", "%v", err)
		}
		if slices.ContainsFunc(c.Drivers[:i], func(o Driver) bool { return o.Name == d.Name }) {
			fault(key+".name", "%s is listed twice", d.Name)
		}
	}
}

// checkPath reports a path that is neither empty nor absolute and clean.
func checkPath(fault func(key, format string, args ...any), key, path string) {
	if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
		fault(key, "%q is not an absolute, clean path", path)
	}
}

// Options are where a process looks, and where it keeps answers.
type Options struct {
	Roots sysfs.Roots
	// KeepIn is the directory for answers that take long to get; empty: they are not kept.
	KeepIn string
	// Version of this program: another version asks again.
	Version string
	// Log takes warnings; default: slog's.
	Log *slog.Logger
}

// Sources makes the sources of a document of capabilities. The configuration must be
// complete and valid.
func (c Config) Sources(o Options) capabilities.Sources {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	keys := capabilities.NewHostKeys(o.Roots, o.Version, hypervisors.Hypervisors(o.Roots).All())
	s := capabilities.Sources{
		Roots:         o.Roots,
		Hypervisors:   hypervisors.Hypervisors(o.Roots),
		VMMs:          c.programs(o, keys.Recent),
		RecentHostKey: keys.Recent,

		DefaultHypervisor: c.Hypervisor,
		ObsoleteCPUModels: c.ObsoleteModels(),

		PermittedHostDevices: c.PermittedHostDevices,

		Version: o.Version,
		Log:     o.Log,
	}
	if o.KeepIn != "" {
		s.CacheFile = filepath.Join(o.KeepIn, capabilitiesFile)
	}
	return s
}

// programs are the VMMs of this node, the preferred one first.
func (c Config) programs(o Options, hostKey func() string) []vmm.Program {
	known := hypervisors.Hypervisors(o.Roots).All()
	q := qemuprobe.Config{
		Binary: c.QEMU.Binary, Log: o.Log,
		Hypervisors: known,
		HostKey:     hostKey,
	}
	if o.KeepIn != "" {
		q.CacheFile = filepath.Join(o.KeepIn, qemuFile)
	}
	return inOrder(c.VMMs, c.withDrivers(o.Log, []vmm.Program{
		qemuprobe.New(q),
		chprobe.New(chprobe.Config{
			Binary: c.CloudHypervisor.Binary, Firmware: c.CloudHypervisor.firmware(), Architecture: runtime.GOARCH,
			Hypervisors: known, HostKey: hostKey,
		}),
	}))
}

// withDrivers adds the VMMs that have a driver of their own, or puts them in the place of
// those of the same name.
func (c Config) withDrivers(log *slog.Logger, programs []vmm.Program) []vmm.Program {
	for _, d := range c.Drivers {
		v := remote.New(remote.Config{Name: d.Name, Driver: plan.Driver{Program: d.Program, Args: d.Args}, Log: log})
		at := slices.IndexFunc(programs, func(p vmm.Program) bool { return p.Name() == d.Name })
		if at < 0 {
			programs = append(programs, v)
			continue
		}
		programs[at] = v
	}
	return programs
}

// inOrder puts those that are named first, in that order.
func inOrder(names []string, programs []vmm.Program) []vmm.Program {
	place := func(p vmm.Program) int {
		if i := slices.Index(names, p.Name()); i >= 0 {
			return i
		}
		return len(names)
	}
	slices.SortStableFunc(programs, func(a, b vmm.Program) int { return place(a) - place(b) })
	return programs
}

// VMMNames returns the names that VMMs have in a configuration, the preferred one first.
func (c Config) VMMNames() (names []string) {
	for _, p := range c.programs(Options{}, nil) {
		names = append(names, p.Name())
	}
	return names
}

// Sayings asks the VMMs on behalf of another process, which plans VMs for them. A program
// that can't be asked is in them with why. The configuration must be complete and valid.
func (c Config) Sayings(ctx context.Context) []vmm.Saying {
	var out []vmm.Saying
	for _, p := range c.Sources(Options{}).VMMs {
		t, tells := p.(vmm.Teller)
		if !tells {
			continue
		}
		s := vmm.Saying{Name: p.Name()}
		info, err := p.Info(ctx)
		if err == nil {
			s.Said, err = t.Tell(info)
		}
		if err != nil {
			s.Error = err.Error()
		}
		out = append(out, s)
	}
	return out
}
