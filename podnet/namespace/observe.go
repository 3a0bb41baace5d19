package namespace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
)

// observed is what an interface has.
type observed struct {
	mac       string
	addresses []netip.Prefix // none is link-local
	routes    []podnet.Route // but for those that follow from addresses
	// onLink are the networks that are on the interface because of an address.
	onLink map[netip.Prefix]bool
}

// own are the addresses, alone where their networks are not on the interface: some network
// plugins have a pod send all to its gateway.
func (o observed) own() (all []netip.Prefix) {
	for _, p := range o.addresses {
		if !o.onLink[p.Masked()] {
			p = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		}
		all = append(all, p)
	}
	return all
}

func (o observed) has(family func(netip.Addr) bool) bool {
	for _, p := range o.addresses {
		if family(p.Addr()) {
			return true
		}
	}
	return false
}

func (o observed) of(ipv6 bool) (all []netip.Addr) {
	for _, p := range o.addresses {
		if p.Addr().Is6() == ipv6 {
			all = append(all, p.Addr())
		}
	}
	return all
}

// observe reads addresses and routes of an interface. An unknown namespace's: there may be
// more than anybody needs: it keeps no more than the bounds and one.
func observe(link netlink.Link) (o observed, err error) {
	o.mac, o.onLink = link.Attrs().HardwareAddr.String(), make(map[netip.Prefix]bool)
	addrs, err := addresses(link)
	if err != nil {
		return o, err
	}
	for _, a := range addrs {
		if p, ok := prefix(a.IP, a.Mask); ok {
			o.addresses = append(o.addresses, p)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if err := o.addRoutes(link, family); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *observed) addRoutes(link netlink.Link, family int) error {
	filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN}
	before := len(o.routes)
	err := again(func() error {
		o.routes = o.routes[:before]
		err := netlink.RouteListFilteredIter(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			o.note(r, family)
			return len(o.routes) <= podnet.MaxRoutes
		})
		if len(o.routes) > podnet.MaxRoutes { // also of a list that may lack some
			return fmt.Errorf("more than %d", podnet.MaxRoutes)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("its routes: %w", err)
	}
	return nil
}

// note keeps of a route what an interface with these addresses needs.
func (o *observed) note(r netlink.Route, family int) {
	if r.Protocol == unix.RTPROT_KERNEL && r.Dst != nil {
		p, ok := prefix(r.Dst.IP, r.Dst.Mask)
		if ok && slices.ContainsFunc(o.addresses, func(a netip.Prefix) bool { return a.Masked() == p.Masked() }) {
			o.onLink[p.Masked()] = true
		}
	}
	if route, ok := routeOf(r, family); ok {
		o.routes = append(o.routes, route)
	}
}

// routeOf leaves out what the kernel makes itself: of addresses, and link-local.
func routeOf(r netlink.Route, family int) (podnet.Route, bool) {
	if r.Protocol == unix.RTPROT_KERNEL || r.Type != unix.RTN_UNICAST {
		return podnet.Route{}, false
	}
	to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if family == netlink.FAMILY_V6 {
		to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if r.Dst != nil {
		p, ok := prefix(r.Dst.IP, r.Dst.Mask)
		if !ok || p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() || p.Addr().IsMulticast() {
			return podnet.Route{}, false
		}
		to = p
	}
	route := podnet.Route{Destination: to.Masked()}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		route.Gateway = via.Unmap()
	}
	return route, true
}

func prefix(ip, mask []byte) (netip.Prefix, bool) {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Prefix{}, false
	}
	bits := 0
	for _, b := range mask {
		for ; b != 0; b <<= 1 {
			bits++
		}
	}
	p := netip.PrefixFrom(addr.Unmap(), bits)
	return p, p.IsValid()
}
