package place

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/memory"
)

// LeaseName is the file in a VM's run folder with what the run has of the host.
const LeaseName = "lease.json"

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
	// Unsaveable is why this run can't be saved, whatever disks and networks it has; empty: it can.
	// UnsaveableParts says the same; none: an agent has written the lease that had no parts.
	Unsaveable      string           `json:"unsaveable,omitempty"`
	UnsaveableParts []contract.Fault `json:"unsaveableParts,omitempty"`
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

// Searched is where the run's processes are looked for: without a cgroup everywhere.
func (l *Lease) Searched() host.Cgroup {
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

// Write keeps the lease in a run directory.
func (l *Lease) Write(runDir string) error {
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return atomicfile.ReplaceDurably(filepath.Join(runDir, LeaseName), content, 0o600)
}

// ReadLease reads a run folder's lease. The error wraps fs.ErrNotExist if it
// has none.
func ReadLease(runDir string) (*Lease, error) {
	path := filepath.Join(runDir, LeaseName)
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

// Ending bounds the end of a run: its shim's, after its VMM's, and that of all that the VMM
// has left.
func (l *Lease) Ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, PatienceFor(EndPatience, l.MemorySize))
}
