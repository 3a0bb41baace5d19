package metrics

import (
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

// Sources are what the metrics are made from. All of them answer at once, from
// memory. One that is nil has nothing to say, and its metrics are not there.
type Sources struct {
	// Node is the node's name, as Kubernetes has it.
	Node string
	// Version of vmlet.
	Version string
	// Roots of the machine's files.
	Roots sysfs.Roots
	Log   *slog.Logger

	// VMs are those of the agent.
	VMs func() []VM
	// Document is what the node can do; nil as long as it wasn't asked.
	Document func() *capabilitiesv1.Capabilities
	// Probes is how it was asked.
	Probes func() capabilities.ProbeStats
	// Devices are those offered to the kubelet.
	Devices func() []deviceplugin.Status
	// Saves and Restores are those of memory images.
	Saves, Restores func() Images
	// Outcomes are of what was done for the Node object.
	Outcomes func() []Outcome
	// RAM is the mount that guests' memory is in.
	RAM func() (RAM, bool)
}

// VM is one, as it is now.
type VM struct {
	// Namespace and Name tell VMs from each other. Namespace and Pod are empty for
	// one that is in no pod.
	Namespace, Name, Pod string
	// Record is not to be changed.
	Record *nodev1.VirtualMachine
	// Panics is how many of the guest were reported to this agent.
	Panics uint64
	// Threads is how the hypervisor's threads are called.
	Threads hypervisor.ThreadNames
	// Sampler asks its VMM, and is another one after the VMM was started again; it
	// can be compared. Nil: the VMM can't be asked now.
	Sampler vmm.Sampler
}

// Outcome is how often something was done for the Node object, and how it ended.
type Outcome struct {
	// What was done, and Outcome: words of a small, fixed set.
	What, Outcome string
	Count         uint64
}

// Images are saves or restores of memory images since the agent began.
type Images struct {
	// Outcomes are counts by how they ended, a word of a small, fixed set each; Succeeded is
	// one of them.
	Outcomes  map[string]uint64
	Succeeded uint64
	// Duration and Bytes are those of all that succeeded, together.
	Duration time.Duration
	Bytes    uint64
}

// RAM is the size of the mount, and what is taken of it, in bytes.
type RAM struct{ Size, Used uint64 }
