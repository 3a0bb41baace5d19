// Package namespace makes a guest's networks in the network namespace of the calling thread:
// bridges, taps, addresses, sysctls, and the packet filter's rules of podnet/rules. Made
// again, as after the restart of a container, everything is as after the first time. The
// package must not know who asked for it. Start reading at Make.
package namespace

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/rules"
)

// Sockets opens what the DHCP server of a guest with this MAC needs on a bridge.
type Sockets func(bridge, mac string) ([]*os.File, error)

// Make makes a plan in the network namespace of the calling thread, which the caller has
// locked. The files are the caller's: for each network its taps, then its sockets. After an
// error none is left; interfaces may be, which no guest has.
func Make(p podnet.Plan, sockets Sockets) (podnet.Made, []*os.File, error) {
	if err := p.Check(); err != nil {
		return podnet.Made{}, nil, err
	}
	if err := unfiltered().apply(); err != nil {
		return podnet.Made{}, nil, err
	}
	m := &maker{}
	for i, n := range p.Networks {
		if err := m.network(n, i, sockets); err != nil {
			for _, f := range m.files {
				f.Close()
			}
			return podnet.Made{}, nil, fmt.Errorf("interface %s of the pod: %w", n.Interface, err)
		}
	}
	return m.made, m.files, nil
}

type maker struct {
	made  podnet.Made
	files []*os.File
}

func (m *maker) network(n podnet.Network, index int, sockets Sockets) error {
	nic, err := linkNamed(n.Interface)
	if err != nil {
		return err
	}
	seen, err := observe(nic)
	if err != nil {
		return err
	}
	a := podnet.Attached{Bridge: n.BridgeName(), MAC: cmp.Or(n.MAC, seen.mac), MTU: nic.Attrs().MTU}
	if n.Binding == podnet.Masquerade {
		err = masquerade(n, seen, &a)
	} else {
		err = bridge(n, index, nic, seen, &a)
	}
	if err != nil {
		return err
	}
	taps, err := openTap(n, a.MTU)
	m.files = append(m.files, taps...)
	if err != nil {
		return err
	}
	if n.Fenced {
		if err := fence(n, a, seen); err != nil {
			return err
		}
	}
	a.Taps = len(taps)
	if sockets != nil {
		opened, err := sockets(a.Bridge, a.MAC)
		m.files = append(m.files, opened...)
		if err != nil {
			return fmt.Errorf("sockets for DHCP on %s: %w", a.Bridge, err)
		}
	}
	m.made.Networks = append(m.made.Networks, a)
	return nil
}

// masquerade makes the bridge with the gateways' addresses, and the rules.
func masquerade(n podnet.Network, seen observed, a *podnet.Attached) error {
	networks := []netip.Prefix{n.CIDR}
	if seen.has(netip.Addr.Is6) {
		networks = append(networks, n.IPv6CIDR)
	}
	link, err := ensureBridge(a.Bridge, podnet.GatewayMAC, a.MTU)
	if err != nil {
		return err
	}
	if err := forwarding(n.Interface, a.Bridge, len(networks) > 1).apply(); err != nil {
		return err
	}
	var tables []rules.Table
	for _, network := range networks {
		gateway, guest := podnet.Gateway(network), podnet.Guest(network)
		if err := setAddress(link, netip.PrefixFrom(gateway, network.Bits()), 0); err != nil {
			return err
		}
		a.Gateways = append(a.Gateways, gateway)
		a.Addresses = append(a.Addresses, netip.PrefixFrom(guest, network.Bits()))
		tables = append(tables, rules.For(rules.Guest{
			Interface: n.Interface, Bridge: a.Bridge, Network: network, Ports: n.Ports,
			Addresses: seen.of(network.Addr().Is6()),
		}))
	}
	if err := rules.Apply(tables...); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// setAddress gives an interface one address more, at once: nobody else on its link has it.
func setAddress(link netlink.Link, p netip.Prefix, flags int) error {
	addr := &netlink.Addr{IPNet: ipNet(p), Flags: flags}
	if p.Addr().Is6() {
		addr.Flags |= unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", link.Attrs().Name, p, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// ensureBridge makes a bridge, or takes the one of an earlier run. mac may be empty.
func ensureBridge(name, mac string, mtu int) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if mac != "" {
		address, err := net.ParseMAC(mac)
		if err != nil {
			return nil, err
		}
		attrs.HardwareAddr = address
	}
	snooping := false // it would keep router advertisements from a guest that hasn't asked
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making bridge %s: %w", name, err)
	}
	link, err := linkNamed(name)
	switch {
	case err != nil:
		return nil, err
	case link.Type() != "bridge":
		return nil, fmt.Errorf("%s is there, and is no bridge but of type %.20s", name, link.Type())
	case link.Attrs().MTU == mtu:
		return link, nil
	}
	return link, netlink.LinkSetMTU(link, mtu)
}

func linkNamed(name string) (netlink.Link, error) {
	var link netlink.Link
	err := again(func() (err error) { link, err = netlink.LinkByName(name); return err })
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, contract.Errorf("there is no interface %s%s", contract.ObjectName(name), contract.Reason(contract.FaultNoInterface))
	}
	return link, err
}

// triesAtMost bounds how often a list is asked for while others change it.
const triesAtMost = 5

// again repeats a request for a list if the kernel says that it changed meanwhile, so that
// some may be missing (NLM_F_DUMP_INTR).
func again(list func() error) (err error) {
	for range triesAtMost {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return podnet.PassingError{Err: err}
}
