package vmm

import (
	"context"
	"net/netip"
)

// GuestAsker is a Monitor of a VMM with a channel to an agent in the guest.
type GuestAsker interface {
	// AskGuest asks the guest's agent about the guest. ErrNoGuestAgent: there is none that
	// answers. What an agent doesn't know is left empty.
	AskGuest(ctx context.Context) (Guest, error)
}

// Guest is the guest's own word about itself, bounded: see MaxGuestText, MaxGuestInterfaces.
type Guest struct {
	AgentVersion, Hostname string
	OS                     GuestOS
	Interfaces             []GuestInterface
}

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
// many addresses.
const (
	MaxGuestText       = 256
	MaxGuestInterfaces = 32
	MaxGuestAddresses  = 16
)
