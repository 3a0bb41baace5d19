// Package podnet says what is made of a pod's network for the guest of the VM in it: inert
// plans, with their bounds, and what has become of them. podnet/rules has the packet filter's
// rules, podnet/namespace makes it all in the network namespace of a thread, podnet/helper is
// the process that may. The package must know neither Kubernetes nor specifications. Start
// reading at Plan.
package podnet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/vmlet/vmlet/lease"
)

// Binding is how a guest is connected to its pod's network.
type Binding string

const (
	// Masquerade has the guest in a network of its own, behind the pod's addresses.
	Masquerade Binding = "masquerade"
	// Bridge has the guest take over MAC and addresses of the pod's interface.
	Bridge Binding = "bridge"
)

// GatewayMAC is the gateway's for guests that are masqueraded: the same in each pod, so that
// it is right in the ARP cache of a guest that is restored in another.
const GatewayMAC = "02:00:00:00:00:00"

// Bounds of a plan, and of what is reported of a pod's network.
const (
	MaxNetworks  = 16
	MaxPorts     = 256
	MaxQueues    = 16
	MaxAddresses = 16
	MaxRoutes    = 64
	// MaxFiles is how many descriptors a plan may come to. More than 253 don't go with one
	// message (SCM_MAX_FD, net/scm.h).
	MaxFiles = 128
	// maxName is IFNAMSIZ (linux/if.h) less its NUL.
	maxName = 15
	// maxIPv4Bits and maxIPv6Bits leave room for a gateway and a guest.
	maxIPv4Bits, maxIPv6Bits = 30, 126
)

// Plan is what is made in one pod's network namespace, all of it or nothing that the guest
// could use.
type Plan struct {
	Networks []Network `json:"networks"`
}

// Network connects one of the guest's interfaces to one of the pod's.
type Network struct {
	Binding Binding `json:"binding"`
	// Interface is the pod's.
	Interface string `json:"interface"`
	// MAC of the guest's interface; empty: that of the pod's, of a bridge alone.
	MAC string `json:"mac,omitempty"`
	// CIDR is the guest's IPv4 network behind a masquerade: the first address is the
	// gateway's, the second the guest's. IPv6CIDR is used only if the pod has an IPv6 address.
	CIDR     netip.Prefix `json:"cidr,omitzero"`
	IPv6CIDR netip.Prefix `json:"ipv6CIDR,omitzero"`
	// Ports of the pod that lead to the guest; none: all.
	Ports []Ports `json:"ports,omitempty"`
	// Fenced keeps the guest of a bridge to its own addresses; one network can be.
	Fenced bool `json:"fenced,omitempty"`
	// Queues of the tap; 0: one.
	Queues int `json:"queues,omitempty"`
}

// Ports are one or several of a protocol.
type Ports struct {
	Protocol    string `json:"protocol"` // "tcp" or "udp"
	First, Last uint16
}

// PassingError is of trouble that may be over when the plan is made again.
type PassingError struct{ Err error }

// Error returns the message of Err.
func (e PassingError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e PassingError) Unwrap() error { return e.Err }

// IsPassing says whether an error wraps a PassingError.
func IsPassing(err error) bool { return errors.As(err, new(PassingError)) }

// Made is what has become of a plan.
type Made struct {
	Networks []Attached `json:"networks"`
}

// Attached is what has become of a Network.
type Attached struct {
	// Bridge is the interface by which the guest's DHCP server reaches it.
	Bridge string `json:"bridge"`
	// MAC is the guest's.
	MAC string `json:"mac"`
	MTU int    `json:"mtu"`
	// Addresses are the guest's, with their networks' prefixes.
	Addresses []netip.Prefix `json:"addresses"`
	// Gateways are those of a masquerade, one for each of Addresses.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// Routes are those of the pod's interface that a bridged guest takes over, but for what
	// follows from Addresses.
	Routes []Route `json:"routes,omitempty"`
	// Taps is how many descriptors the tap has, one a queue.
	Taps int `json:"taps"`
}

// Route is a way to a network.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	// Gateway; not valid: the network is on the interface itself.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// Check says what is wrong with a plan, and where.
func (p Plan) Check() error {
	if n := len(p.Networks); n == 0 || n > MaxNetworks {
		return fmt.Errorf("networks: %d of them: want 1 to %d", n, MaxNetworks)
	}
	seen, masqueraded, fenced, files := make(map[string]bool), false, false, 0
	for i, n := range p.Networks {
		if err := n.check(); err != nil {
			return fmt.Errorf("networks[%d].%w", i, err)
		}
		if seen[n.Interface] {
			return fmt.Errorf("networks[%d].interface: %q is taken by another network", i, n.Interface)
		}
		if masqueraded && n.Binding == Masquerade {
			return fmt.Errorf("networks[%d].binding: one network of a pod can be %s", i, Masquerade)
		}
		if fenced && n.Fenced {
			return fmt.Errorf("networks[%d].fenced: one network of a pod can be fenced", i)
		}
		seen[n.Interface], masqueraded, fenced = true, masqueraded || n.Binding == Masquerade, fenced || n.Fenced
		if files += max(n.Queues, 1) + lease.SocketCount; files > MaxFiles {
			return fmt.Errorf("networks[%d].queues: with them the networks have more than %d descriptors", i, MaxFiles)
		}
	}
	return nil
}

func (n Network) check() error {
	switch {
	case !isName(n.Interface):
		return fmt.Errorf("interface: %.40q is no interface's name", n.Interface)
	case n.Queues < 0 || n.Queues > MaxQueues:
		return fmt.Errorf("queues: %d: want %d at most", n.Queues, MaxQueues)
	case n.MAC != "" && !isMAC(n.MAC), n.MAC == "" && n.Binding == Masquerade:
		return fmt.Errorf("mac: %.40q is no interface's", n.MAC)
	case n.Fenced && n.Binding != Bridge:
		return fmt.Errorf("fenced: only of a %s", Bridge)
	case n.Binding == Bridge:
		return nil
	case n.Binding != Masquerade:
		return fmt.Errorf("binding: %.40q is neither %s nor %s", n.Binding, Masquerade, Bridge)
	case len(n.Ports) > MaxPorts:
		return fmt.Errorf("ports: %d of them: want %d at most", len(n.Ports), MaxPorts)
	}
	if err := checkCIDR(n.CIDR, n.CIDR.Addr().Is4(), maxIPv4Bits); err != nil {
		return fmt.Errorf("cidr: %w", err)
	}
	if err := checkCIDR(n.IPv6CIDR, n.IPv6CIDR.Addr().Is6() && !n.IPv6CIDR.Addr().Is4In6(), maxIPv6Bits); err != nil {
		return fmt.Errorf("ipv6CIDR: %w", err)
	}
	for i, p := range n.Ports {
		if p.Protocol != "tcp" && p.Protocol != "udp" {
			return fmt.Errorf("ports[%d].protocol: %.40q is neither tcp nor udp", i, p.Protocol)
		}
		if p.First == 0 || p.Last < p.First {
			return fmt.Errorf("ports[%d]: %d to %d are no ports", i, p.First, p.Last)
		}
	}
	return nil
}

func isMAC(text string) bool {
	mac, err := lease.ParseMAC(text)
	return err == nil && mac != lease.MAC{} && mac[0]&1 == 0
}

func checkCIDR(p netip.Prefix, family bool, bits int) error {
	switch {
	case !p.IsValid() || !family:
		return errors.New("want a network of its family")
	case p.Masked() != p:
		return fmt.Errorf("%s is an address in a network: want %s", p, p.Masked())
	case p.Bits() < 4 || p.Bits() > bits:
		return fmt.Errorf("%s: want a prefix of 4 to %d bits", p, bits)
	case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsUnspecified():
		return fmt.Errorf("%s is no network for a guest", p)
	}
	return nil
}

// isName follows the kernel's rule (dev_valid_name in net/core/dev.c). A path is made of
// the name, too (/proc/sys/net/ipv4/conf/NAME).
func isName(s string) bool {
	if s == "" || len(s) > maxName || s == "." || s == ".." || s == "all" || s == "default" || s == "lo" {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || r == ':' || r == '%' || r > unicode.MaxASCII || !unicode.IsPrint(r) || r == ' '
	})
}

// Gateway is the first address of a guest's network, Guest the second.
func Gateway(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// Guest is the guest's address in a network of its own.
func Guest(p netip.Prefix) netip.Addr { return Gateway(p).Next() }

// BridgeName is that of the bridge in the pod which the guest's tap is in, NICName what the
// pod's interface becomes when it is bridged, TapName the tap's.
func (n Network) BridgeName() string { return "k6t-" + n.short() }

// NICName is what the pod's interface is called once it is bridged.
func (n Network) NICName() string { return n.short() + "-nic" }

// TapName is the tap's.
func (n Network) TapName() string { return "tap-" + n.short() }

// short leaves room for four more bytes. Multus' names of secondary interfaces, as KubeVirt
// asks for them, are "pod" and 11 digits.
func (n Network) short() string {
	const room = maxName - 4
	if len(n.Interface) <= room {
		return n.Interface
	}
	if rest, is := strings.CutPrefix(n.Interface, "pod"); is && len(rest) == room {
		return rest
	}
	sum := sha256.Sum256([]byte(n.Interface))
	return hex.EncodeToString(sum[:])[:room]
}
