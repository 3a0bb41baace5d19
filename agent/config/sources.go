package config

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// Files in the state folder that keep what is dear to ask.
const (
	capabilitiesFile = "capabilities.json"
	qemuFile         = "qemu.json"
)

// Sources are what this configuration makes of a machine with these roots: its
// hypervisors and VMMs, and where the answers are kept. keepIn is the folder
// for them; empty: nowhere. It is for a process that is no agent, too. A faulty
// configuration is an error.
func (c Config) Sources(roots sysfs.Roots, keepIn string) (capabilities.Sources, error) {
	c, err := c.Complete()
	if err != nil {
		return capabilities.Sources{}, err
	}
	if err := c.Validate(); err != nil {
		return capabilities.Sources{}, err
	}
	return c.MakeSources(roots, keepIn), nil
}

// MakeSources is Sources of a configuration that is complete.
func (c Config) MakeSources(roots sysfs.Roots, keepIn string) capabilities.Sources {
	keys := capabilities.NewHostKeys(roots, c.Version)
	s := capabilities.Sources{
		Roots:         roots,
		Hypervisors:   standard.Registry(roots),
		VMMs:          c.vmms(roots, keepIn, keys.Recent),
		RecentHostKey: keys.Recent,

		DefaultHypervisor: c.Hypervisor,
		ObsoleteCPUModels: c.ObsoleteModels(),

		PermittedHostDevices: c.PermittedHostDevices,

		Version: c.Version,
		Log:     c.Log,
	}
	if keepIn != "" {
		s.CacheFile = filepath.Join(keepIn, capabilitiesFile)
	}
	return s
}

// vmms are the VMMs of this node, the preferred one first.
func (c Config) vmms(roots sysfs.Roots, keepIn string, hostKey func() string) []vmm.Program {
	hypervisors := standard.Registry(roots).All()
	q := qemu.Config{
		Binary: c.QEMU.Binary, Log: c.Log,
		Hypervisors: hypervisors,
		HostKey:     hostKey,
	}
	if keepIn != "" {
		q.CacheFile = filepath.Join(keepIn, qemuFile)
	}
	return inOrder(c.VMMs, []vmm.Program{
		qemu.New(q),
		cloudhypervisor.New(cloudhypervisor.Config{
			Binary: c.CloudHypervisor.Binary, Firmware: c.CloudHypervisor.firmware(), Architecture: runtime.GOARCH,
			Hypervisors: hypervisors, HostKey: hostKey,
		}),
	})
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

// vmmNames are the names that VMMs have in a configuration.
func (c Config) vmmNames() (names []string) {
	for _, p := range c.vmms(sysfs.Roots{}, "", nil) {
		names = append(names, p.Name())
	}
	return names
}

// Sayings asks the VMMs of this configuration on behalf of another process, which
// plans VMs for them. A program that can't be asked is in them with why.
func (c Config) Sayings(ctx context.Context) ([]vmm.Saying, error) {
	sources, err := c.Sources(sysfs.Roots{}, "")
	if err != nil {
		return nil, err
	}
	var out []vmm.Saying
	for _, p := range sources.VMMs {
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
	return out, nil
}
