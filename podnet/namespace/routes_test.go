package namespace

import (
	"errors"
	"net"

	"github.com/vishvananda/netlink"
)

// routeVia adds a route in the thread's namespace.
func routeVia(name, to, via string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	_, network, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: network, Gw: net.ParseIP(via)})
}

func addAddress(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(address)
	return errors.Join(err, netlink.AddrAdd(link, addr))
}

// loopbackVia has a guest that means harm send what is for 127.0.0.1 to its gateway.
func loopbackVia(name, via string) error {
	no := sysctls{{"ipv4/conf/" + name + "/route_localnet", "1"}, {"ipv4/conf/all/route_localnet", "1"}}
	if err := no.apply(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	local, err := netlink.ParseAddr("127.0.0.1/8")
	if err := errors.Join(err, netlink.AddrDel(lo, local)); err != nil {
		return err
	}
	return routeVia(name, "127.0.0.0/8", via)
}
