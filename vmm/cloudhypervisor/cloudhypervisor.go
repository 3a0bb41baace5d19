// Package cloudhypervisor knows the VMM cloud-hypervisor: whether it is here, what
// it says of itself on the command line, and how a VM is started with it (Plan).
// It starts none itself.
package cloudhypervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/fingerprint"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
)

// Config is what it needs to know of the node.
type Config struct {
	// Binary is the program's absolute path; empty: the first of DefaultBinaries
	// that is there.
	Binary string
	// Architecture is Go's name of that which the guests have: the machine's own.
	Architecture string
	// Firmware are the paths of which the first that is there boots VMs from their
	// disks; nil: DefaultFirmware.
	Firmware []string
	// Hypervisors of the node. Those that need no device can't run it.
	Hypervisors []hypervisor.Hypervisor
}

// DefaultBinaries returns where the program is looked for.
func DefaultBinaries() []string {
	return []string{"/usr/local/bin/cloud-hypervisor", "/usr/bin/cloud-hypervisor"}
}

// Program is a cloud-hypervisor that may be on this node. Its methods may be
// called concurrently.
type Program struct {
	config Config

	asking chan struct{} // held, by sending into it, while the program is asked
	known  *answer
}

var _ vmm.Program = (*Program)(nil)

// answer is what the program said, and which file it was.
type answer struct {
	file     string
	binary   string
	version  string
	features []string
}

// New returns the program of this configuration. Nothing is run yet.
func New(config Config) *Program {
	return &Program{config: config, asking: make(chan struct{}, 1)}
}

// Name returns "cloud-hypervisor".
func (p *Program) Name() string { return chvm.Name }

// Files are those that the answers hang on.
func (p *Program) Files() []string { return p.binaries() }

func (p *Program) binaries() []string {
	if p.config.Binary != "" {
		return []string{p.config.Binary}
	}
	return DefaultBinaries()
}

// Info asks the program for its version and options, unless it is the file of
// the last time. One that isn't installed is an error that wraps fs.ErrNotExist.
func (p *Program) Info(ctx context.Context) (vmm.Info, error) {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return vmm.Info{}, ctx.Err()
	}
	binary, file, err := p.find()
	if err != nil {
		return vmm.Info{}, err
	}
	if p.known == nil || p.known.file != file {
		fresh, err := ask(ctx, binary)
		if err != nil {
			return vmm.Info{}, err
		}
		fresh.file = file
		p.known = fresh
	}
	return p.info(p.known), nil
}

// find returns the program and what tells this file from a later one.
func (p *Program) find() (binary, file string, err error) {
	var missing error
	for _, path := range p.binaries() {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if missing == nil {
				missing = err
			}
			continue
		case err != nil:
			return "", "", fmt.Errorf("%s: %w", chvm.Name, err)
		case !info.Mode().IsRegular():
			return "", "", fmt.Errorf("%s: %s is not a file", chvm.Name, path)
		}
		return path, path + " " + fingerprint.Of(path, ""), nil
	}
	return "", "", fmt.Errorf("%s is not installed: %w", chvm.Name, missing)
}

func (p *Program) info(a *answer) vmm.Info {
	c := &vmletv1.VmmCapabilities{
		Name: chvm.Name, Version: a.version, Binary: a.binary, Architecture: p.config.Architecture, State: "works",
		// Whether memory can be restored on demand too is not on the command
		// line, and the version doesn't tell.
		SnapshotKinds: []string{"eager"},
		Features:      slices.Clone(a.features),
	}
	for _, h := range p.config.Hypervisors {
		if h.Device() == "" {
			continue // there is no emulation in it
		}
		c.Accelerators = append(c.Accelerators, &vmletv1.AcceleratorCapabilities{
			Hypervisor: h.Name(), Accelerator: h.Accelerator(), Reason: "not tried: vmlet starts no VMs with " + chvm.Name + " yet",
		})
	}
	return vmm.Info{Name: chvm.Name, Version: a.version, Binary: a.binary, Capabilities: c, Details: p.details(a)}
}

// patience is how long the program may take to print its options. It takes
// milliseconds; the bound is for one that hangs.
const patience = 10 * time.Second
