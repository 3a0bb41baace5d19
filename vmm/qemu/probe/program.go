// Package probe asks the QEMU program of this node what it can do, and keeps the answer.
// Start with Program, which is QEMU as the agent uses it.
package probe

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/monitor"
	"golang.org/x/sync/semaphore"
)

// Config is what a Program needs to know of the node.
type Config struct {
	// Binary is the program's absolute path.
	Binary string
	// Hypervisors that the program is to be tried with. One whose device isn't
	// there is not.
	Hypervisors []hypervisor.Hypervisor
	// HostKey returns what changes whenever the machine might make the program
	// answer otherwise (the kernel, microcode, parameters of the hypervisors'
	// modules, access to their devices), no matter whose program it is; nil: none.
	HostKey func() string
	// FirmwareDirs hold firmware descriptors; of two with the same file name the
	// one in the earlier folder counts. Default: DefaultFirmwareDirs.
	FirmwareDirs []string
	// CacheFile keeps what was asked of the program from one start of the agent
	// to the next; empty: it isn't kept.
	CacheFile string
	// Log defaults to slog.Default().
	Log *slog.Logger
}

// DefaultFirmwareDirs returns the folders of QEMU's convention
// (docs/interop/firmware.json), the administrator's before the distribution's.
func DefaultFirmwareDirs() []string {
	return []string{"/etc/qemu/firmware", "/usr/share/qemu/firmware"}
}

// Program is one QEMU program on this node; it implements vmm.VMM. Its methods may
// be called concurrently.
type Program struct {
	qemu.QEMU
	config Config

	// mu is held while the program is asked: who comes meanwhile waits for the
	// answer instead of asking too.
	mu    chan struct{}
	known *answer
	// told is set if the program is not this process's to run, see Told.
	told *answer
	room *semaphore.Weighted // for its monitors' messages; nil: they are trusted, or alone
}

var _ vmm.Portable = (*Program)(nil)

// New returns the QEMU of this configuration. Nothing is run yet.
func New(config Config) *Program {
	if config.FirmwareDirs == nil {
		config.FirmwareDirs = DefaultFirmwareDirs()
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &Program{config: config, mu: make(chan struct{}, 1)}
}

// Info asks the program, unless the program, the hypervisors' devices, the
// firmware descriptors and the machine are those of the last time.
func (q *Program) Info(ctx context.Context) (vmm.Info, error) {
	if q.told != nil {
		return q.info(q.told), nil
	}
	select {
	case q.mu <- struct{}{}:
		defer func() { <-q.mu }()
	case <-ctx.Done():
		return vmm.Info{}, ctx.Err()
	}
	key, err := q.key()
	if err != nil {
		return vmm.Info{}, err
	}
	if q.known.holds(key) {
		return q.info(q.known), nil
	}
	if kept := q.load(key); kept != nil {
		q.known = kept
		return q.info(kept), nil
	}
	fresh, err := q.probe(ctx)
	if err != nil {
		return vmm.Info{}, err
	}
	fresh.Key, fresh.at = key, time.Now()
	q.known = fresh
	q.store(fresh)
	return q.info(fresh), nil
}

func (q *Program) info(a *answer) vmm.Info {
	return vmm.Info{
		Name:        q.Name(),
		Version:     a.Version,
		Binary:      q.config.Binary,
		LazyRestore: a.Details.ReadOnlyMemory,
		Files:       a.Files,
		Passing:     a.passing,
		Details:     &a.Details,

		Capabilities: q.capabilities(a),
	}
}

// CheckImage refuses an image that this program can't restore here; see the function
// of that name.
func (q *Program) CheckImage(ctx context.Context, m *memory.Manifest) error {
	info, err := q.Info(ctx)
	if err != nil {
		return err
	}
	return qemu.CheckImage(info, m)
}

// Connect opens the agent's monitor.
func (q *Program) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	return monitor.Connect(ctx, dial, q.room)
}
