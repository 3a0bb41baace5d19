package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// leaseName is the file in a VM's run folder with what the run has of the host.
const leaseName = "lease.json"

// Lease is what one run of a VM has of the host. It is written down before
// anything of it is made, so that whatever happens to the agent, the next one
// knows what to take back.
type Lease struct {
	// RunID tells this run's exit.json from an earlier one's.
	RunID  string      `json:"runId"`
	Start  time.Time   `json:"start"`
	VMM    string      `json:"vmm"`
	UID    uint32      `json:"uid"`
	Cgroup host.Cgroup `json:"cgroup"`
	// Outside: the run's processes could not be moved into the cgroup.
	Outside bool `json:"outside,omitempty"`
	// Device that the user was given access to; empty: none.
	Device string `json:"device,omitempty"`
	// VFIO are the nodes of devices of the host that it was given access to as well.
	VFIO []string `json:"vfio,omitempty"`
	// HotplugFolders are those that the VMM may open disks in which come later.
	HotplugFolders []string `json:"hotplugFolders,omitempty"`
	// Unsaveable is why this run can't be saved; empty: it can.
	Unsaveable string `json:"unsaveable,omitempty"`
	// Memory is the path of the RAM file.
	Memory string `json:"memory,omitempty"`
	// MemorySize is what the guest may have, in bytes; 0: an agent has written the lease
	// that did not note it.
	MemorySize uint64 `json:"memorySize,omitempty"`
	// Manifest of an image of this run, as far as it is known beforehand. The
	// VMM's program may be replaced while it runs: it is not asked again.
	Manifest memory.Manifest `json:"manifest"`

	// out: not all could be taken back, and so the user id is nobody else's.
	out bool
}

// searched is where the run's processes are looked for: without a cgroup everywhere.
func (l *Lease) searched() host.Cgroup {
	if l.Outside {
		return host.Cgroup{}
	}
	return l.Cgroup
}

// devices are all nodes that the user was given access to.
func (l *Lease) devices() []string {
	if l.Device == "" {
		return l.VFIO
	}
	return append([]string{l.Device}, l.VFIO...)
}

func (l *Lease) write(runDir string) error {
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return atomicfile.ReplaceDurably(filepath.Join(runDir, leaseName), content, 0o600)
}

// readLease reads a run folder's lease. The error wraps fs.ErrNotExist if it
// has none.
func readLease(runDir string) (*Lease, error) {
	path := filepath.Join(runDir, leaseName)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := new(Lease)
	if err := json.Unmarshal(content, l); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// live is a VM's VMM while it runs.
type live struct {
	lease *Lease
	shim  Shim
	vmm   vmm.VMM
	dial  vmm.Dialer
	// over is closed when the VMM has ended and all of the lease is given back.
	over chan struct{}
	exit *shim.Exit // set before over is closed

	mu      sync.Mutex
	monitor vmm.Monitor // nil: not connected
	damage  string      // what is wrong with the image that memory is mapped from
}

func newLive(l *Lease, s Shim, v vmm.VMM, dial vmm.Dialer, monitor vmm.Monitor) *live {
	return &live{lease: l, shim: s, vmm: v, dial: dial, monitor: monitor, over: make(chan struct{})}
}

func (l *live) setDamaged(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.damage = why
}

func (l *live) damaged() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.damage
}

// checkWhole refuses to let a guest run that would read wrong memory, and may write what
// comes of it to its disks.
func (l *live) checkWhole(vm string) error {
	why := l.damaged()
	if why == "" {
		return nil
	}
	return fault.Errorf(codes.DataLoss, "vm %s stands still, as the image is damaged that its memory is mapped from (%s): kill it, and restore a whole image or start it --cold; resume --allow-damaged lets it go on with wrong memory, and it can then be stopped", vm, why)
}

// connected returns the monitor. The watch connects it anew when it is lost.
func (l *live) connected() (vmm.Monitor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.monitor == nil {
		return nil, fault.Errorf(codes.Unavailable, "the VMM's monitor does not answer: try again, or kill the VM")
	}
	return l.monitor, nil
}

// swap replaces the monitor and closes the one that was there.
func (l *live) swap(m vmm.Monitor) {
	l.mu.Lock()
	old := l.monitor
	l.monitor = m
	l.mu.Unlock()
	if old != nil && old != m {
		old.Close()
	}
}

// dialer reaches the sockets of a run folder.
func dialer(s Shims, runDir string) vmm.Dialer {
	return func(ctx context.Context, name string) (net.Conn, error) { return s.DialSocket(ctx, runDir, name) }
}
