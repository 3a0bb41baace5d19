package vmm

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// GuestAsker is a Monitor of a VMM with a channel to an agent in the guest.
type GuestAsker interface {
	// AskGuest asks the guest's agent about the guest. ErrNoGuestAgent: there is none that
	// answers. What an agent doesn't know is left empty.
	AskGuest(ctx context.Context) (Guest, error)
}

// GuestInspector is a GuestAsker that has more to say.
type GuestInspector interface {
	// InspectGuest asks for all that the agent knows, as AskGuest does.
	InspectGuest(ctx context.Context) (GuestDetails, error)
}

// Suspender is a VMM whose guests can suspend themselves to disk.
type Suspender interface {
	// RefuseSuspend says why a VM's guest can't; nil: it can, as far as the VMM is concerned.
	// The error names the field.
	RefuseSuspend(s *specv1.VirtualMachineSpec) error
}

// Unsuspendable refuses to suspend the guest of a VMM that has no channel to an agent in it.
func Unsuspendable(vmm string) error {
	var faults spec.FieldErrors
	faults.Add("vmm", "%s has no channel to an agent in the guest, which would suspend the guest to disk%s%s", vmm,
		contract.Advice("save the VM instead"), contract.Reason(contract.FaultSaveInstead))
	return faults
}

// GuestSuspender is a Monitor by which a guest can be asked to suspend itself to disk.
type GuestSuspender interface {
	// SuspendGuest asks the guest's agent to write the guest's memory to the guest's own disk
	// and to power off. It returns nil when the guest has taken that up: the VM then ends, or
	// the guest goes on if it could not after all. ErrNoGuestAgent, ErrGuestCannot: it did not.
	SuspendGuest(ctx context.Context) error
}

// ErrGuestCannot is wrapped by what a guest says that keeps it from doing what it was asked.
var ErrGuestCannot = errors.New("the guest can't")

// Screener is a Monitor of a VMM that can take a picture of the guest's display.
type Screener interface {
	// Screenshot returns a PNG of MaxPicture bytes at most, which is the caller's to close.
	// move moves the pointer first. ErrNoDisplay: there is nothing to be seen.
	Screenshot(ctx context.Context, move bool) (io.ReadCloser, error)
}

// MaxPicture bounds a screenshot, in bytes: that of a display of 4K that is all noise has 25
// MiB.
const MaxPicture = 32 << 20

// Guest is the guest's own word about itself, bounded: see MaxGuestText, MaxGuestInterfaces.
type Guest struct {
	AgentVersion, Hostname string
	// Unsupported is why its agent is not enough for vmlet; empty: it is.
	Unsupported string
	// Frozen: its file systems are frozen, and its agent says no more than that.
	Frozen     bool
	OS         GuestOS
	Interfaces []GuestInterface
}

// GuestDetails are a Guest and what is rarely needed.
type GuestDetails struct {
	Guest
	Commands    []GuestCommand
	Timezone    string
	Users       []GuestUser
	FileSystems []GuestFileSystem
}

// GuestCommand is one of its agent's.
type GuestCommand struct {
	Name    string
	Enabled bool
}

// GuestUser is logged in; Domain is Windows'.
type GuestUser struct {
	Name, Domain string
	Login        time.Time
}

// GuestFileSystem is mounted.
type GuestFileSystem struct {
	Device, MountPoint, Type string
	// Used and Total are bytes; 0: not known.
	Used, Total uint64
	Disks       []GuestDisk
}

// GuestDisk is what a file system is on.
type GuestDisk struct{ Serial, Bus string }

// GuestOS is what os-release(5) and uname(2) say in the guest.
type GuestOS struct {
	ID, Name, PrettyName, Version, VersionID string
	KernelRelease, KernelVersion, Machine    string
}

// GuestInterface is a network interface as the guest has it; MAC is empty if it has none.
type GuestInterface struct {
	Name, MAC string
	Addresses []netip.Addr
}

// Bounds on a Guest: a text has as many bytes, a guest as many interfaces, and each of them as
// many addresses; and as many commands, users, file systems, and disks of each.
const (
	MaxGuestText        = 256
	MaxGuestInterfaces  = 32
	MaxGuestAddresses   = 16
	MaxGuestCommands    = 256
	MaxGuestUsers       = 64
	MaxGuestFileSystems = 128
	MaxGuestDisks       = 16
)
