// Package vmm says what every VMM must offer the agent. Each VMM (QEMU, cloud-hypervisor)
// has a directory below this one: at its top what is known without the program (Planner),
// in probe the program on this node (VMM), in monitor the agent's connection to one that
// runs (Monitor), in driver the shim's, in wire what these share. Package standard lists
// the VMMs; this one must not know them. Start reading at Planner;
// docs/adding-a-vmm.md shows all of it with an example.
package vmm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"

	"golang.org/x/sync/semaphore"
)

// ErrNoGuestAgent means that no agent in the guest answers: it has none, it is
// not connected, or it hangs.
var ErrNoGuestAgent = errors.New("no guest agent answers")

// ErrNoDisplay means that the guest has no display, or none that shows anything.
var ErrNoDisplay = errors.New("no display")

// ErrGuestKeeps means that the guest was asked to let something go, and has not.
var ErrGuestKeeps = errors.New("the guest has not let it go")

// Program is a VMM program that may be on this node, and can be asked about.
type Program interface {
	// Name is the specification's word for it: "qemu".
	Name() string
	// Info asks the program what it is and can do, by running it. It is asked
	// again only when its answer might be another. That the program is missing
	// or can't be run is an error that names its file.
	Info(ctx context.Context) (Info, error)
}

// Planner is a VMM as it is everywhere, with its program or without: it runs nothing
// and opens nothing. It may also be a Defaulter, a Validator, a Plugger, a SaveRefuser, a
// MemoryCoster and a ProgramNamer. Its methods may be called concurrently.
type Planner interface {
	// Name is the specification's word for it: "qemu".
	Name() string
	// Traits are what its machines have, for guests of this architecture (Go's name for it).
	Traits(arch string) Traits
	// Plan turns a specification, complete with its defaults, into a plan. It
	// touches nothing; all it needs is in the request. What the VMM cannot do
	// is an error that names the field.
	Plan(req PlanRequest) (*plan.Plan, error)
	// Manifest fills in what the VMM wants to find in an image of the VM that
	// was started with this request: its version, machine type, CPU model and
	// features, accelerator.
	Manifest(req PlanRequest) (memory.Manifest, error)
}

// VMM is one virtual machine monitor program on this node.
type VMM interface {
	Program
	Planner
	// CheckImage refuses an image that this VMM, here, cannot restore.
	CheckImage(ctx context.Context, m *memory.Manifest) error
	// Connect opens the monitor that is the agent's. dial reaches a socket by
	// its name in the VM's run folder.
	Connect(ctx context.Context, dial Dialer) (Monitor, error)
}

// Teller is a VMM that can be asked in one process and planned for in another: in
// a pod, with the program of the pod's image, and by the node's agent.
type Teller interface {
	VMM
	// Tell returns what Info said in the form that Told takes.
	Tell(info Info) (json.RawMessage, error)
	// Told returns the VMM whose Info is what Tell said elsewhere. It is given
	// what a pod said, and need not believe it. Its monitors read large messages only
	// while the memory that they take, in bytes, is in room, which other VMMs may share;
	// nil: it is bounded for each alone.
	Told(said json.RawMessage, room *semaphore.Weighted) (VMM, error)
}

// Portable is a Teller whose program says the same in each container of this machine that has the same
// files, but for hypervisors that the container has no device of.
type Portable interface {
	Teller
	// AllFiles are those that the answer depends on, folders among them. A missing one counts, too.
	AllFiles(info Info) []string
}

// Saying is what one VMM program said of itself, on its way to another process.
type Saying struct {
	Name string `json:"name"`
	// Error is why it can't be used; empty: it can.
	Error string          `json:"error,omitempty"`
	Said  json.RawMessage `json:"said,omitempty"`
}

// Dialer connects to the unix socket with this name in a VM's run folder.
type Dialer func(ctx context.Context, name string) (net.Conn, error)

// Info is what a VMM program is and can do.
type Info struct {
	Name    string
	Version string
	Binary  string
	// LazyRestore: it can map an image's memory read-only.
	LazyRestore bool
	// Files are those that the answer was found to depend on beside the program
	// itself: what a script in its place starts, libraries, modules. Sorted.
	Files []string
	// Passing: something failed that may work in a moment. The answer is not to
	// be kept.
	Passing bool
	// Capabilities is all that the program said of itself, as the node's
	// document has it.
	Capabilities *capabilitiesv1.VmmCapabilities
	// Details are the VMM's own (what its planner needs); opaque to the agent.
	Details any
}

// RunsUnder says why a VMM runs no guests under a hypervisor; nil: it does, or
// has not said.
func RunsUnder(v *capabilitiesv1.VmmCapabilities, hypervisor string) error {
	accelerators := v.GetAccelerators()
	if len(accelerators) == 0 {
		return nil
	}
	for _, a := range accelerators {
		if a.GetHypervisor() != hypervisor {
			continue
		}
		if a.GetUsable() {
			return nil
		}
		return fmt.Errorf("%s: %s", v.GetName(), a.GetReason())
	}
	return fmt.Errorf("%s %s has not been tried with it", v.GetName(), v.GetVersion())
}

// NoPod is what a planner says of a pod's network where no tap was made for it.
const NoPod = "only a VM in a pod is on its pod's network: want user or tap"

// PlanRequest is all that a plan depends on.
type PlanRequest struct {
	ID string
	// Spec with every default filled in.
	Spec *specv1.VirtualMachineSpec
	// Hypervisor is "kvm", "mshv" or "emulation": chosen, never "auto".
	Hypervisor string
	// Accelerator is the VMM's name for it, as the hypervisor says: "kvm", "tcg".
	Accelerator string
	// CPUQuirks are features that host CPU models must go without on this
	// node, "-arch-capabilities" for example.
	CPUQuirks []string
	Info      Info
	User      *plan.User
	// HypervisorDevice is the path of the hypervisor's device: "/dev/kvm".
	HypervisorDevice string
	// MemoryPath is where the RAM file is made.
	MemoryPath string
	// StateDir of the VM: firmware variables.
	StateDir string
	// BlockDevices are those paths among the disks and backing files that are
	// block devices and not files: VMMs treat the two differently.
	BlockDevices []string
	// Taps says, for each interface, which descriptor sent with the plan is
	// its tap; -1: none. One with several queues has as many, one after the other.
	Taps []int
	// VhostNet says, for each interface, which descriptor is the first of as many of
	// /dev/vhost-net, by which the kernel moves packets; -1, or none at all: none.
	VhostNet []int
	// Seed is that of cloud-init's seed image; -1: there is none.
	Seed int
	// HotplugFolders are absolute paths of folders, or files, that disks plugged in
	// later are in. A VMM that is fenced in as it starts can open nothing else then.
	// They must exist when it starts.
	HotplugFolders []string
	// Image that the VM is restored from; nil: it boots.
	Image *Image
	// Paused: the guest is not to run yet.
	Paused bool
}

// Monitor is the agent's connection to one running VMM. Its methods may be
// called concurrently.
type Monitor interface {
	Status(ctx context.Context) (Status, error)
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Reset(ctx context.Context) error
	// SetGuestTime tells the guest, where it has an agent, what time it is.
	// ErrNoGuestAgent: it has none that answers.
	SetGuestTime(ctx context.Context, now time.Time) error
	// Events are those of the VMM, in order, until the connection ends; then
	// the channel is closed.
	Events() <-chan Event
	Close() error
}

// Status is what a VMM says of itself.
type Status struct {
	Running  bool
	Panicked bool
	// Asked: it doesn't run as it was asked to pause.
	Asked bool
	// Detail is the VMM's own word: "paused", "inmigrate".
	Detail string
	// IOError: the VMM stopped the guest as a disk could not be read or written. It tries
	// that again when the guest continues. DiskErrors are the disks, as far as known.
	IOError    bool
	DiskErrors []DiskError
}

// DiskError is a disk that could not be read or written.
type DiskError struct {
	// Index is the disk's slot; see spec.Slot.
	Index int
	// NoSpace: there was no room for what was written.
	NoSpace bool
}

// Event is something that a VMM reported.
type Event struct {
	Time time.Time
	// Name is the VMM's own: "RESET", "GUEST_PANICKED".
	Name string
	Data json.RawMessage
	// Change is set where the event means one to the agent.
	Change Change
	// Dropped events before this one: the agent was too slow.
	Dropped int
}

// Change is what an event means.
type Change int

const (
	ChangeNone Change = iota
	ChangePaused
	ChangeResumed
	ChangeReset
	ChangePanicked
	ChangeAgentConnected
	ChangeAgentDisconnected
)
