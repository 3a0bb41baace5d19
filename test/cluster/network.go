package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// network is a cluster's: 256 addresses of the range that RFC 2544 sets apart
// for tests of equipment, so that no other network has them. The machine has
// one and reaches all others through it; beyond the machine nothing can be
// reached, as nothing is translated.
type network struct{ number int }

func (n network) address(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(n.number), last})
}

func (n network) node() string    { return n.address(1).String() }
func (n network) machine() string { return n.address(2).String() }

// api is the address of the service "kubernetes", which the node has itself:
// pods reach the API server at it without a kube-proxy.
func (n network) api() string { return n.address(65).String() }

// dns is the address of the service "kube-dns".
func (n network) dns() string { return n.address(74).String() }

func (n network) services() string { return netip.PrefixFrom(n.address(64), 26).String() }
func (n network) pods() string     { return netip.PrefixFrom(n.address(128), 25).String() }

// pods6 is a network of the cluster's own (RFC 4193), which the machine has no way to.
func (n network) pods6() string { return fmt.Sprintf("fdc6:12:%x::/112", n.number) }

// link is the name of the machine's end of the wire to the node.
func (n network) link() string { return fmt.Sprintf("vmlet-cl%d", n.number) }

// nodeLink is that of the other end, in the node's namespace.
const nodeLink = "eth0"

// connect lays a wire to the namespace of a process, with the first free
// network: one that another cluster takes at the same moment isn't. It goes when
// that namespace goes.
func connect(pid int) (network, error) {
	for number := range 256 {
		n := network{number}
		switch free, err := n.free(); {
		case err != nil:
			return n, err
		case !free:
			continue
		}
		if err := n.connect(pid); !errors.Is(err, unix.EEXIST) {
			return n, err
		}
	}
	return network{}, errors.New("198.18.0.0/16 has no free network")
}

func (n network) free() (bool, error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return false, fmt.Errorf("listing addresses: %w", err)
	}
	all := netip.PrefixFrom(n.address(0), 24)
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && all.Contains(ip) {
			return false, nil
		}
	}
	_, err = netlink.LinkByName(n.link())
	return err != nil, nil
}

func (n network) connect(pid int) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = n.link()
	wire := &netlink.Veth{LinkAttrs: attributes, PeerName: nodeLink, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(wire); err != nil {
		return fmt.Errorf("making the interface %s: %w", n.link(), err)
	}
	link, err := netlink.LinkByName(n.link())
	if err != nil {
		return err
	}
	address := netlink.Addr{IPNet: ipNet(netip.PrefixFrom(n.address(2), 26))}
	if err := errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, &address)); err != nil {
		return fmt.Errorf("setting up the interface %s: %w", n.link(), err)
	}
	for _, prefix := range []string{n.services(), n.pods()} {
		route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(prefix)), Gw: n.address(1).AsSlice()}
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("the way to %s: %w", prefix, err)
		}
	}
	return nil
}

// disconnect is for a wire whose namespace should be gone, but is kept by
// something, or takes its time.
func (n network) disconnect() error {
	link, err := netlink.LinkByName(n.link())
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the interface %s: %w", n.link(), err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
