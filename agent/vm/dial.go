package vm

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// dialPatience is how long a guest may take to answer at one of its addresses.
const dialPatience = 10 * time.Second

// Networks of guests where the specification names none.
const (
	defaultCIDR     = "10.0.2.0/24"
	defaultIPv6CIDR = "fd10:0:2::/120"
)

// Protocols that guests are dialled by.
const protocolTCP, protocolUDP = "tcp", "udp"

// DialGuest connects to a port of a VM's guest, from where the guest's network is. The
// connection is the caller's.
func (g *Guests) DialGuest(ctx context.Context, name, protocol string, port uint32) (net.Conn, error) {
	protocol = cmp.Or(protocol, protocolTCP)
	switch {
	case protocol != protocolTCP && protocol != protocolUDP:
		return nil, fault.Invalid("protocol", "%q: choose tcp or udp", protocol)
	case port == 0 || port > 65535:
		return nil, fault.Invalid("port", "%d is no port: choose one from 1 to 65535", port)
	}
	m, l, err := g.reach(ctx, name, lifecycle.Dial)
	if err != nil {
		return nil, err
	}
	addresses, err := guestAddresses(m.Snapshot().GetStatus().GetEffectiveSpec().GetNetworks(), protocol, uint16(port))
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	var first error
	for _, address := range addresses {
		conn, err := l.shim.Dial(ctx, shim.DialTo{Network: protocol, Address: address, Within: dialPatience})
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, contract.Errorf("%s: port %d: %w", contract.ThisVM(name), port, first)
}

// guestAddresses are where a port of the guest is reached, the first one first, by the first
// interface at which guests can be reached at all.
func guestAddresses(networks []*specv1.NetworkInterface, protocol string, port uint16) ([]string, error) {
	err := fault.Errorf(codes.FailedPrecondition, "has no network interface")
	for _, n := range networks {
		var all []string
		switch {
		case n.GetPod().GetBinding() == "masquerade":
			all = masqueraded(n.GetPod(), port)
		case n.GetUser() != nil:
			all, err = forwarded(n, protocol, port)
		default:
			err = fault.Errorf(codes.Unavailable, "interface %s: the guest has an address of its own, to which nothing leads from inside its pod: connect to that address", n.GetName())
		}
		if all != nil {
			return all, nil
		}
	}
	return nil, err
}

// masqueraded are the guest's addresses behind its pod's.
func masqueraded(n *specv1.PodNetwork, port uint16) (all []string) {
	for _, cidr := range []string{cmp.Or(n.GetCidr(), defaultCIDR), cmp.Or(n.GetIpv6Cidr(), defaultIPv6CIDR)} {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			all = append(all, netip.AddrPortFrom(p.Masked().Addr().Next().Next(), port).String())
		}
	}
	return all
}

// forwarded is where the VMM's own NAT forwards a port from.
func forwarded(n *specv1.NetworkInterface, protocol string, port uint16) ([]string, error) {
	var ports []string
	for _, f := range n.GetUser().GetPorts() {
		if cmp.Or(f.GetProtocol(), protocolTCP) != protocol {
			continue
		}
		if f.GetGuestPort() == uint32(port) {
			return []string{net.JoinHostPort(loopback(f.GetHostAddress()), strconv.Itoa(int(f.GetHostPort())))}, nil
		}
		ports = append(ports, strconv.Itoa(int(f.GetGuestPort())))
	}
	return nil, fault.Errorf(codes.FailedPrecondition, "interface %s: its user-mode network leads to the ports that are listed alone, for %s: %s; add %d to the interface's ports and restart the VM",
		n.GetName(), protocol, cmp.Or(strings.Join(ports, ", "), "none"), port)
}

// loopback is the address to dial for one that was listened at.
func loopback(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil && !ip.IsUnspecified() {
		return address
	}
	return "127.0.0.1"
}
