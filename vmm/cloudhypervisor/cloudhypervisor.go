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
	"strings"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/fingerprint"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
	"golang.org/x/sync/semaphore"
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
	// Hypervisors of the node, which it is tried with.
	Hypervisors []hypervisor.Hypervisor
	// HostKey returns what changes whenever the machine might make the program answer
	// otherwise, whoever's program it is; nil: none.
	HostKey func() string
}

// DefaultBinaries returns where the program is looked for.
func DefaultBinaries() []string {
	return []string{"/usr/local/bin/cloud-hypervisor", "/usr/bin/cloud-hypervisor"}
}

// Program is a cloud-hypervisor that may be on this node; it implements vmm.VMM. Its
// methods may be called concurrently.
type Program struct {
	config Config

	asking chan struct{} // held, by sending into it, while the program is asked
	known  *answer
	// told is set if the program is not this process's to run, see Told.
	told *answer
	room *semaphore.Weighted // for its replies; nil: they are trusted, or alone
}

var _ vmm.Teller = (*Program)(nil)

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

// Info asks the program for its version and options and tries whether it starts,
// unless it, the hypervisors' devices and the machine are those of the last time. One
// that isn't installed is an error that wraps fs.ErrNotExist.
func (p *Program) Info(ctx context.Context) (vmm.Info, error) {
	if p.told != nil {
		return p.info(p.told), nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return vmm.Info{}, ctx.Err()
	}
	binary, key, err := p.find()
	if err != nil {
		return vmm.Info{}, err
	}
	if !p.known.holds(key) {
		fresh, err := p.ask(ctx, binary)
		if err != nil {
			return vmm.Info{}, err
		}
		fresh.key, fresh.at = key, time.Now()
		p.known = fresh
	}
	a := *p.known
	a.Details = p.onNode(a.Details)
	return p.info(&a), nil
}

// Forget lets the program be asked anew.
func (p *Program) Forget() {
	p.asking <- struct{}{}
	defer func() { <-p.asking }()
	p.known = nil
}

// find returns the program and the key of its answers.
func (p *Program) find() (binary, key string, err error) {
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
		return path, p.key(path), nil
	}
	return "", "", fmt.Errorf("%s is not installed: %w", chvm.Name, missing)
}

func (p *Program) key(binary string) string {
	parts := []string{binary + " " + fingerprint.Of(binary, "")}
	for _, h := range p.config.Hypervisors {
		if device := h.Device(); device != "" {
			parts = append(parts, device+" "+fingerprint.Of(device, ""))
		}
	}
	if p.config.HostKey != nil {
		parts = append(parts, "host "+p.config.HostKey())
	}
	return strings.Join(parts, "; ")
}

// answer is what the program said.
type answer struct {
	Binary  string  `json:"binary"`
	Version string  `json:"version"`
	Details Details `json:"details"`

	key string
	// passing: it didn't start, and that may be another way in a moment; at: when.
	passing bool
	at      time.Time
}

// passingBelief is how long a failure is believed that may be gone in a moment: long
// enough that not each request makes a trial of its own.
const passingBelief = 10 * time.Second

func (a *answer) holds(key string) bool {
	return a != nil && a.key == key && (!a.passing || time.Since(a.at) < passingBelief)
}

func (p *Program) info(a *answer) vmm.Info {
	return vmm.Info{
		Name: chvm.Name, Version: a.Version, Binary: a.Binary,
		LazyRestore:  a.Details.lazy(),
		Passing:      a.passing,
		Capabilities: p.capabilities(a),
		Details:      &a.Details,
	}
}

func (p *Program) capabilities(a *answer) *capabilitiesv1.VmmCapabilities {
	d := &a.Details
	out := &capabilitiesv1.VmmCapabilities{
		Name: chvm.Name, Version: a.Version, Binary: a.Binary, Architecture: d.Arch, State: capabilitiesv1.State_STATE_WORKS,
		Devices:           slices.Clone(d.Devices),
		SnapshotKinds:     d.snapshotKinds(),
		LazyRestore:       d.lazy(),
		BuiltAccelerators: slices.Clone(d.Built),
		Features:          slices.Clone(d.Features),
	}
	if why := a.noSave(); why != "" {
		out.Reason, out.SnapshotKinds = "VMs can't be saved: "+why, nil
	}
	for _, h := range p.config.Hypervisors {
		failure, tried := d.Accelerators[h.Name()]
		if !tried {
			continue
		}
		out.Accelerators = append(out.Accelerators, &capabilitiesv1.AcceleratorCapabilities{
			Hypervisor: h.Name(), Accelerator: h.Accelerator(), Usable: failure == "", Reason: failure,
		})
	}
	return out
}

func (d *Details) snapshotKinds() []string {
	switch {
	case d.NoSave != "":
		return nil
	case d.lazy():
		// RAM that is mapped privately is in no file that could be copied.
		return []string{"eager", "lazy", "stream"}
	}
	return []string{"eager"}
}

// noSave says why no VM can be saved here, as the program was last tried; nil: it can.
func (p *Program) noSave() error {
	a := p.told
	if a == nil {
		p.asking <- struct{}{}
		a = p.known
		<-p.asking
	}
	if a == nil || a.noSave() == "" {
		return nil
	}
	return errors.New("vmm: " + a.noSave())
}

// noSave is empty where VMs can be saved.
func (a *answer) noSave() string {
	if a.Details.NoSave != "" {
		return a.Details.NoSave
	}
	return undrained(a.Version)
}

// drainsFrom is the first major version that waits, when it pauses a VM, for what its
// disks have under way (cloud-hypervisor's change #8356). Before it such a request is
// neither in the snapshot nor, perhaps, on the disk.
const drainsFrom = 53

// undrained says why VMs of this version can't be saved; empty: they can. The version is
// all that tells: no option, field or feature came with that change.
func undrained(version string) string {
	if n, ok := major(version); ok && n >= drainsFrom {
		return ""
	}
	return fmt.Sprintf("cloud-hypervisor %.40s pauses a VM before its disks have completed their requests, which a saved VM would lose: install version %d or newer", version, drainsFrom)
}
