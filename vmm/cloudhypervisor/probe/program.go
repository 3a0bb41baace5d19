// Package probe asks the cloud-hypervisor of this node what it is and can do: by its command
// line, and by a VM that does nothing. Start with Program, which is cloud-hypervisor as the
// agent uses it.
package probe

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
	"github.com/vmlet/vmlet/memory"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/monitor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/sync/semaphore"
)

// Config is what it needs to know of the node.
type Config struct {
	// Binary is the program's absolute path; empty: the first of DefaultBinaries
	// that is there.
	Binary string
	// Architecture is Go's name of that which the guests have: the machine's own.
	Architecture string
	// Firmware are paths: the first that exists boots VMs from their
	// disks; nil: DefaultFirmware.
	Firmware []string
	// Hypervisors of the node, which it is tried with.
	Hypervisors []hypervisor.Hypervisor
	// HostKey returns what changes whenever the machine might make the program answer
	// otherwise, no matter whose program it is; nil: none.
	HostKey func() string
}

// DefaultBinaries returns where the program is looked for.
func DefaultBinaries() []string {
	return []string{"/usr/local/bin/cloud-hypervisor", "/usr/bin/cloud-hypervisor"}
}

// Program is a cloud-hypervisor that may be on this node; it implements vmm.VMM. Its
// methods may be called concurrently.
type Program struct {
	cloudhypervisor.CloudHypervisor
	config Config

	asking chan struct{} // held, by sending into it, while the program is asked
	known  *answer
	// told is set if the program is not this process's to run, see Told.
	told *answer
	room *semaphore.Weighted // for its replies; nil: they are trusted, or alone
}

var _ interface {
	vmm.Teller
	vmm.SaveRefuser
} = (*Program)(nil)

// New returns the program of this configuration. Nothing is run yet.
func New(config Config) *Program {
	return &Program{config: config, asking: make(chan struct{}, 1)}
}

// Files are those that the answers depend on.
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

// Forget lets the program be asked again.
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
			return "", "", fmt.Errorf("%s: %w", wire.Name, err)
		case !info.Mode().IsRegular():
			return "", "", fmt.Errorf("%s: %s is not a file", wire.Name, path)
		}
		return path, p.key(path), nil
	}
	return "", "", fmt.Errorf("%s is not installed: %w", wire.Name, missing)
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
	Binary  string                  `json:"binary"`
	Version string                  `json:"version"`
	Details cloudhypervisor.Details `json:"details"`

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
		Name: wire.Name, Version: a.Version, Binary: a.Binary,
		LazyRestore:  a.Details.Lazy(),
		Passing:      a.passing,
		Capabilities: p.capabilities(a),
		Details:      &a.Details,
	}
}

func (p *Program) capabilities(a *answer) *capabilitiesv1.VmmCapabilities {
	d := &a.Details
	out := &capabilitiesv1.VmmCapabilities{
		Name: wire.Name, Version: a.Version, Binary: a.Binary, Architecture: d.Arch, State: capabilitiesv1.State_STATE_WORKS,
		Devices:           slices.Clone(d.Devices),
		SnapshotKinds:     snapshotKinds(d),
		LazyRestore:       d.Lazy(),
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

func snapshotKinds(d *cloudhypervisor.Details) []string {
	switch {
	case d.NoSave != "":
		return nil
	case d.Lazy():
		// RAM that is mapped privately is in no file that could be copied.
		return []string{"eager", "lazy", "stream"}
	}
	return []string{"eager"}
}

// noSave says why no VM can be saved here, as the program was last tried; empty: it can.
func (p *Program) noSave() string {
	a := p.told
	if a == nil {
		p.asking <- struct{}{}
		a = p.known
		<-p.asking
	}
	if a == nil {
		return ""
	}
	return a.noSave()
}

// noSave is empty where VMs can be saved.
func (a *answer) noSave() string {
	if a.Details.NoSave != "" {
		return a.Details.NoSave
	}
	return cloudhypervisor.Undrained(a.Version)
}

// CheckImage refuses an image that this program can't restore here; see the function
// of that name.
func (p *Program) CheckImage(ctx context.Context, m *memory.Manifest) error {
	info, err := p.Info(ctx)
	if err != nil {
		return err
	}
	return cloudhypervisor.CheckImage(info, m)
}

// RefuseSave refuses what no cloud-hypervisor can save, and all where this one was found
// unable to.
func (p *Program) RefuseSave(s *specv1.VirtualMachineSpec) spec.FieldErrors {
	faults := p.CloudHypervisor.RefuseSave(s)
	if why := p.noSave(); why != "" {
		faults.Add("vmm", "%s", why)
	}
	return faults
}

// Connect opens the agent's monitor.
func (p *Program) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	return monitor.Connect(ctx, dial, p.room)
}
