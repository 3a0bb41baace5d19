// Package capabilities says what a node can give a guest, in one document: it
// asks the machine's files, the kernel and the VMMs, and keeps what is dear to
// ask until something changes that would change the answer.
package capabilities

import (
	"log/slog"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

// Sources are what the document is made from.
type Sources struct {
	// Roots of the machine's files and devices.
	Roots sysfs.Roots
	// Node is the node's name; empty: the host name.
	Node string
	// Hypervisors and VMMs, the preferred ones first.
	Hypervisors *hypervisor.Registry
	VMMs        []vmm.VMM
	// DefaultHypervisor is what a specification that says "auto" gets; empty
	// or "auto": the first that works.
	DefaultHypervisor string
	// ObsoleteCPUModels are not offered.
	ObsoleteCPUModels []string
	// CacheFile keeps what is dear to ask; empty: it isn't kept.
	CacheFile string
	// Log defaults to slog.Default().
	Log *slog.Logger
}
