package namespace

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/podnettest"
)

// vnetHeader is what a tap has before each frame (struct virtio_net_hdr), in bytes.
const vnetHeader = 10

const otherMAC, other4, other6, gatewayLink = "02:00:00:00:00:99", "10.244.0.9", "fd00:10:244::9", "fe80::1"

// frame is one of Ethernet, to all.
func frame(from string, etherType uint16, content []byte) []byte {
	mac, _ := net.ParseMAC(from)
	f := append(bytes.Repeat([]byte{0xff}, 6), mac...)
	return append(binary.BigEndian.AppendUint16(f, etherType), content...)
}

// arp is an ARP reply that says whose an address is.
func arp(from, senderMAC, sender string) []byte {
	mac, _ := net.ParseMAC(senderMAC)
	body := append([]byte{0, 1, 8, 0, 6, 4, 0, 2}, mac...)
	body = append(body, netip.MustParseAddr(sender).AsSlice()...)
	return frame(from, unix.ETH_P_ARP, append(body, make([]byte, 10)...))
}

// ip4 is a UDP packet.
func ip4(from, source string, port uint16) []byte {
	body := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	body = append(append(body, netip.MustParseAddr(source).AsSlice()...), 255, 255, 255, 255)
	body = binary.BigEndian.AppendUint16(append(body, 0, 68), port)
	return frame(from, unix.ETH_P_IP, append(body, 0, 8, 0, 0))
}

// ip6 is a packet with headers of extensions, if any, before its content.
func ip6(source string, protocol byte, content []byte, extensions ...byte) []byte {
	first := protocol
	if len(extensions) > 0 {
		first = unix.IPPROTO_HOPOPTS
		content = append(append([]byte{protocol}, extensions...), content...)
	}
	body := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(content)))
	body = append(append(body, first, 255), netip.MustParseAddr(source).AsSlice()...)
	body = append(body, netip.MustParseAddr("ff02::1").AsSlice()...)
	return frame(podMAC, unix.ETH_P_IPV6, append(body, content...))
}

// icmp6 is a message of neighbour discovery about an address, or of another kind.
func icmp6(kind byte, about string) []byte {
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr(about).AsSlice()...)
}

// TestBridgedIsFenced: a guest that is bridged to the pod network sends with its own addresses alone.
func TestBridgedIsFenced(t *testing.T) {
	w := newWorld(t, true)
	w.pod.Do(func() error { return routeVia("eth0", "fd00:99::/64", gatewayLink) })
	plan := podnet.Plan{Networks: []podnet.Network{{Binding: podnet.Bridge, Interface: "eth0", Fenced: true}}}
	for range 2 { // again, as for a container that is started again
		w.make(plan)
	}
	udp, padded := []byte{0, 1, 0, 2, 0, 8, 0, 0}, []byte{0, 1, 4, 0, 0, 0, 0}
	const link, icmp = "fe80::858:aff:fef4:5", unix.IPPROTO_ICMPV6
	for _, c := range []struct {
		name   string
		frame  []byte
		passes bool
	}{
		{"own ARP", arp(podMAC, podMAC, pod4), true},
		{"ARP that asks whether an address is free", arp(podMAC, podMAC, "0.0.0.0"), true},
		{"own IPv4", ip4(podMAC, pod4, 7070), true},
		{"DHCP", ip4(podMAC, "0.0.0.0", 67), true},
		{"own IPv6", ip6(pod6, unix.IPPROTO_UDP, udp), true},
		{"link-local IPv6", ip6(link, unix.IPPROTO_UDP, udp), true},
		{"own neighbour advertisement", ip6(link, icmp, icmp6(136, pod6)), true},
		{"own link-local neighbour advertisement", ip6(link, icmp, icmp6(136, link)), true},
		{"neighbour solicitation of another", ip6(pod6, icmp, icmp6(135, other6)), true},
		{"solicitation for an address that may be free", ip6("::", icmp, icmp6(135, pod6)), true},
		{"router solicitation", ip6(link, icmp, icmp6(133, "::")), true},
		{"multicast listener report", ip6(link, icmp, icmp6(143, "::"), padded...), true},

		{"another's MAC", arp(otherMAC, otherMAC, pod4), false},
		{"another's MAC with IPv4", ip4(otherMAC, pod4, 7070), false},
		{"another's MAC inside of ARP", arp(podMAC, otherMAC, pod4), false},
		{"ARP for another", arp(podMAC, podMAC, other4), false},
		{"ARP for the gateway", arp(podMAC, podMAC, node4), false},
		{"another's IPv4", ip4(podMAC, other4, 7070), false},
		{"IPv4 without an address", ip4(podMAC, "0.0.0.0", 7070), false},
		{"another's IPv6", ip6(other6, unix.IPPROTO_UDP, udp), false},
		{"IPv6 without an address", ip6("::", unix.IPPROTO_UDP, udp), false},
		{"router's link-local address", ip6(gatewayLink, unix.IPPROTO_UDP, udp), false},
		{"router advertisement", ip6(link, icmp, icmp6(134, "::")), false},
		{"router advertisement behind an extension", ip6(link, icmp, icmp6(134, "::"), padded...), false},
		{"redirect", ip6(link, icmp, icmp6(137, other6)), false},
		{"neighbour advertisement for another", ip6(pod6, icmp, icmp6(136, other6)), false},
		{"neighbour advertisement for another, behind an extension", ip6(pod6, icmp, icmp6(136, other6), padded...), false},
		{"neighbour advertisement for the router", ip6(link, icmp, icmp6(136, gatewayLink)), false},
		{"neighbour advertisement for the gateway", ip6(link, icmp, icmp6(136, node6)), false},
		{"neighbour advertisement from nobody", ip6("::", icmp, icmp6(136, pod6)), false},
		{"another protocol", frame(podMAC, unix.ETH_P_8021AD, make([]byte, 50)), false},
		{"spanning tree", frame(podMAC, 38, make([]byte, 38)), false},
	} {
		if got := w.seen(c.frame); got != c.passes {
			t.Errorf("%s: passes %v, want %v", c.name, got, c.passes)
		}
	}
}

// TestFenceOfUnknownAddresses: where the pod's interface has no addresses the guest's MAC alone is looked at.
func TestFenceOfUnknownAddresses(t *testing.T) {
	w := &world{t: t, node: podnettest.New(t), pod: podnettest.New(t)}
	podnettest.Connect(testMTU, podnettest.End{In: w.node, Name: "veth0"}, podnettest.End{In: w.pod, Name: "eth0", MAC: podMAC})
	w.make(podnet.Plan{Networks: []podnet.Network{{Binding: podnet.Bridge, Interface: "eth0", Fenced: true}}})
	if !w.seen(ip4(podMAC, other4, 7070)) {
		t.Error("an address of which nothing is known is kept back")
	}
	if w.seen(ip4(otherMAC, other4, 7070)) {
		t.Error("another's MAC passes")
	}
}

// seen sends a frame as the guest would, and one that passes always; it says whether the first came to the node, too.
func (w *world) seen(f []byte) (seen bool) {
	w.t.Helper()
	var fd int
	w.node.Do(func() (err error) {
		veth, err := net.InterfaceByName("veth0")
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: veth.Index})
	})
	defer unix.Close(fd)
	last := ip4(podMAC, pod4, 4321)
	w.pod.Do(func() error {
		var one unix.CPUSet // one after the other: each CPU has a queue of its own
		if err := unix.SchedGetaffinity(0, &one); err != nil {
			return err
		}
		for cpu, found := 0, false; cpu < 8*len(one)*8; cpu++ {
			if one.IsSet(cpu) && found {
				one.Clear(cpu)
			}
			found = found || one.IsSet(cpu)
		}
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		for _, content := range [][]byte{f, last} {
			if _, err := w.files[0].Write(append(make([]byte, vnetHeader), content...)); err != nil {
				return err
			}
		}
		return nil
	})
	buffer := make([]byte, 2048)
	for {
		n, err := unix.Read(fd, buffer)
		if err != nil {
			w.t.Fatal(err)
		}
		if bytes.Equal(buffer[:n], f) {
			seen = true
		}
		if bytes.Equal(buffer[:n], last) {
			return seen
		}
	}
}
