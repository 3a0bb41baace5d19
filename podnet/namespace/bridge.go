package namespace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/rules"
)

// serverAddress is that of the DHCP server on the bridge of the network with this index, as
// in KubeVirt: on the link alone, and no guest's.
func serverAddress(index int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 75, byte(10 + index)}), 32)
}

// bridge gives the pod's interface to the guest: it goes into a bridge with the guest's tap,
// under another name and MAC. Another, which leads nowhere, takes its name, MAC, addresses and
// routes: the node's network plugin looks for them there, and so does this function when it is
// called again.
func bridge(n podnet.Network, index int, nic netlink.Link, seen observed, a *podnet.Attached) error {
	a.Addresses, a.Routes = seen.own(), seen.routes
	link, err := ensureBridge(a.Bridge, "", a.MTU)
	if err != nil {
		return err
	}
	if done, err := replaced(n, link); err != nil {
		return err
	} else if !done {
		if err := replaceNIC(n, nic, link, seen); err != nil {
			return err
		}
	}
	if err := switching(n.NICName(), a.Bridge).apply(); err != nil {
		return err
	}
	if err := setAddress(link, serverAddress(index), 0); err != nil {
		return err
	}
	a.Gateways = []netip.Addr{serverAddress(index).Addr()}
	return netlink.LinkSetUp(link)
}

// fence keeps the guest to its own addresses, before it has its tap.
func fence(n podnet.Network, a podnet.Attached, seen observed) error {
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	f := rules.Fence{Tap: n.TapName(), MAC: mac}
	for _, p := range a.Addresses {
		f.Addresses = append(f.Addresses, p.Addr())
	}
	for _, r := range seen.routes {
		if r.Gateway.IsValid() && !slices.Contains(f.Gateways, r.Gateway) {
			f.Gateways = append(f.Gateways, r.Gateway)
		}
	}
	return f.Apply()
}

// replaced says whether an earlier run has put the interface into the bridge.
func replaced(n podnet.Network, bridge netlink.Link) (bool, error) {
	var link netlink.Link
	err := again(func() (err error) { link, err = netlink.LinkByName(n.NICName()); return err })
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return false, nil
	case err != nil:
		return false, err
	case link.Attrs().MasterIndex != bridge.Attrs().Index:
		return false, fmt.Errorf("%s is there, and not in bridge %s: its pod has to be deleted", n.NICName(), bridge.Attrs().Name)
	}
	return true, nil
}

// replaceNIC puts the interface into the bridge and another into its place.
func replaceNIC(n podnet.Network, nic, bridge netlink.Link, seen observed) error {
	if nic.Attrs().MasterIndex != 0 {
		return errors.New("it is in a bridge already, which is not the guest's")
	}
	mac, err := randomMAC()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"taking it down", func() error { return netlink.LinkSetDown(nic) }},
		{"renaming it to " + n.NICName(), func() error { return netlink.LinkSetName(nic, n.NICName()) }},
		{"changing its MAC", func() error { return netlink.LinkSetHardwareAddr(nic, mac) }},
		{"removing its addresses", func() error { return removeAddresses(nic) }},
		{"putting it into bridge " + bridge.Attrs().Name, func() error { return netlink.LinkSetMaster(nic, bridge) }},
		{"bringing it up", func() error { return netlink.LinkSetUp(nic) }},
		{"putting another in its place", func() error { return addStandIn(n.Interface, nic.Attrs().MTU, seen) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w: its pod has to be deleted", step.what, err)
		}
	}
	return nil
}

func randomMAC() (net.HardwareAddr, error) {
	mac := make(net.HardwareAddr, 6)
	_, err := rand.Read(mac)
	mac[0] = mac[0]&^1 | 2
	return mac, err
}

func removeAddresses(link netlink.Link) error {
	addrs, err := addresses(link)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}

// addStandIn makes an interface that is as the pod's was, and leads nowhere: a bridge without
// ports, which each kernel has that has the guest's.
func addStandIn(name string, mtu int, seen observed) error {
	link, err := ensureBridge(name, seen.mac, mtu)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, p := range seen.addresses {
		flags := 0
		if !seen.onLink[p.Masked()] {
			flags = unix.IFA_F_NOPREFIXROUTE
		}
		if err := setAddress(link, p, flags); err != nil {
			return err
		}
	}
	// What is on the link comes first: the others' gateways may be there.
	for _, onLink := range []bool{true, false} {
		for _, r := range seen.routes {
			if r.Gateway.IsValid() == onLink {
				continue
			}
			if err := addRoute(link, r); err != nil {
				return fmt.Errorf("route to %s: %w", r.Destination, err)
			}
		}
	}
	return nil
}

func addRoute(link netlink.Link, r podnet.Route) error {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Destination)}
	if r.Gateway.IsValid() {
		route.Gw = r.Gateway.AsSlice()
		route.SetFlag(netlink.FLAG_ONLINK)
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	return netlink.RouteReplace(route)
}
