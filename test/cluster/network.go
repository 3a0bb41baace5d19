package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/cluster/internal/wire"
)

// network is a cluster's: 256 addresses for the first node, services and the machine, and 256 for
// pods of further nodes. Both are of the range that RFC 2544 sets apart for tests of equipment, so
// that no other network has them. The machine has one address and reaches all others through it;
// beyond the machine nothing can be reached, as nothing is translated.
type network struct{ number int }

func (n network) address(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(n.number), last})
}

// node is the address of a node: 1 is the first's, 2 the machine's.
func (n network) node(number int) string {
	if number > 1 {
		number++
	}
	return n.address(byte(number)).String()
}

func (n network) machine() string { return n.address(2).String() }

// api is the address of the service "kubernetes", which the first node has itself:
// its pods reach the API server at it without a kube-proxy.
func (n network) api() string { return n.address(65).String() }

// dns is the address of the service "kube-dns".
func (n network) dns() string { return n.address(74).String() }

func (n network) services() string { return netip.PrefixFrom(n.address(64), 26).String() }

// pods are the addresses of a node's pods: 128 of the first's, 64 of each further one's.
func (n network) pods(node int) string {
	if node == 1 {
		return netip.PrefixFrom(n.address(128), 25).String()
	}
	first := netip.AddrFrom4([4]byte{198, 19, byte(n.number), byte(64 * (node - 2))})
	return netip.PrefixFrom(first, 26).String()
}

// node6 and pods6 are of a network of the cluster's own (RFC 4193), which the machine has no way to.
func (n network) node6(node int) string { return fmt.Sprintf("fdc6:12:%x:ffff::%x", n.number, node) }
func (n network) pods6(node int) string {
	return fmt.Sprintf("fdc6:12:%x:%x::/112", n.number, node-1)
}

// toPods are the ways from one node to the others' pods. Those of nodes to come are there, too.
func (n network) toPods(from int, v6 bool) []wire.Route {
	var all []wire.Route
	for to := 1; to <= MaxNodes; to++ {
		if to == from {
			continue
		}
		all = append(all, wire.Route{To: n.pods(to), Via: n.node(to)})
		if v6 {
			all = append(all, wire.Route{To: n.pods6(to), Via: n.node6(to)})
		}
	}
	return all
}

// link is the name of the machine's interface in the network.
func (n network) link() string { return fmt.Sprintf("vmlet-cl%d", n.number) }

// nodeLink is the name of a node's interface, in its namespace.
const nodeLink = "eth0"

// bridge connects the machine and the nodes. It is in a network namespace of its own, which no
// process is in: it goes with the last socket that was opened there, which the cluster's owner has.
// On the machine a firewall could be in its way.
type bridge struct {
	*netlink.Handle
	link netlink.Link
}

func newBridge() (*bridge, error) {
	handle, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "nodes"
	b := &bridge{handle, &netlink.Bridge{LinkAttrs: attributes}}
	if err := errors.Join(b.LinkAdd(b.link), b.LinkSetUp(b.link)); err != nil {
		b.Close()
		return nil, fmt.Errorf("making a bridge for nodes: %w", err)
	}
	return b, nil
}

// newNamespace opens a socket in a new network namespace.
func newNamespace() (*netlink.Handle, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, back) // nobody else may have this thread
	}
	runtime.UnlockOSThread()
	return handle, err
}

// plug lays a wire from the bridge to the namespace of a process, where it is an interface called
// peer. It goes when one of the namespaces does.
func (b *bridge) plug(port, peer string, pid int) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = port, b.link.Attrs().Index
	wire := &netlink.Veth{LinkAttrs: attributes, PeerName: peer, PeerNamespace: netlink.NsPid(pid)}
	if err := b.LinkAdd(wire); err != nil {
		return fmt.Errorf("making the interface %s: %w", peer, err)
	}
	if err := b.LinkSetUp(wire); err != nil {
		return fmt.Errorf("setting up the bridge's port %s: %w", port, err)
	}
	return nil
}

// connect lays a wire from the bridge to this machine, with the first free network: one that another
// cluster takes at the same moment isn't.
func (b *bridge) connect() (network, error) {
	for number := range 256 {
		n := network{number}
		switch free, err := n.free(); {
		case err != nil:
			return n, err
		case !free:
			continue
		}
		err := b.plug("machine", n.link(), os.Getpid())
		if err == nil {
			err = n.configure()
		}
		if !errors.Is(err, unix.EEXIST) {
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

// configure gives the machine its address, and its ways to services and pods.
func (n network) configure() error {
	link, err := netlink.LinkByName(n.link())
	if err != nil {
		return err
	}
	address := netlink.Addr{IPNet: ipNet(netip.PrefixFrom(n.address(2), 26))}
	if err := errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, &address)); err != nil {
		return fmt.Errorf("setting up the interface %s: %w", n.link(), err)
	}
	ways := map[string]string{n.services(): n.node(1)}
	for node := 1; node <= MaxNodes; node++ {
		ways[n.pods(node)] = n.node(node)
	}
	for to, via := range ways {
		route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(to)), Gw: net.ParseIP(via)}
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("the way to %s: %w", to, err)
		}
	}
	return nil
}

// disconnect is for a wire whose other end should be gone, but is kept by
// something, or takes its time.
func (n network) disconnect() error {
	return removeLink(n.link(), netlink.LinkByName, netlink.LinkDel)
}

// unplug takes away a wire that goes by itself, but after a while.
func (b *bridge) unplug(port string) error { return removeLink(port, b.LinkByName, b.LinkDel) }

func removeLink(name string, find func(string) (netlink.Link, error), remove func(netlink.Link) error) error {
	link, err := find(name)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	if err == nil {
		err = remove(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the interface %s: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
