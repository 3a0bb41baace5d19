package namespace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/podnettest"
)

// Addresses of the test's pod and node.
const (
	podMAC           = "0a:58:0a:f4:00:05"
	pod4, node4      = "10.244.0.5", "10.244.0.1"
	pod6, node6      = "fd00:10:244::5", "fd00:10:244::1"
	guest4, gateway4 = "10.0.2.2", "10.0.2.1"
	guest6, gateway6 = "fd10:0:2::2", "fd10:0:2::1"
	servedA, servedB = 8080, 9090
	shortly          = 300 * time.Millisecond // for what nobody answers
	testMTU          = 1450
)

// world is a node, a pod on it, and a guest that is not there yet.
type world struct {
	t                *testing.T
	node, pod, guest *podnettest.Namespace
	files            []*os.File
	made             podnet.Made
}

func newWorld(t *testing.T, v6 bool) *world {
	t.Helper()
	w := &world{t: t, node: podnettest.New(t), pod: podnettest.New(t), guest: podnettest.New(t)}
	node := podnettest.End{In: w.node, Name: "veth0", Addresses: []string{node4 + "/24"}}
	pod := podnettest.End{In: w.pod, Name: "eth0", MAC: podMAC, Addresses: []string{pod4 + "/24"}, Gateways: []string{node4}}
	if v6 {
		node.Addresses = append(node.Addresses, node6+"/64")
		pod.Addresses, pod.Gateways = append(pod.Addresses, pod6+"/64"), append(pod.Gateways, node6)
	}
	podnettest.Connect(testMTU, node, pod)
	return w
}

func masqueraded(ports ...podnet.Ports) podnet.Plan {
	return podnet.Plan{Networks: []podnet.Network{{
		Binding: podnet.Masquerade, Interface: "eth0", MAC: "52:54:00:00:00:01", Ports: ports,
		CIDR: netip.MustParsePrefix("10.0.2.0/24"), IPv6CIDR: netip.MustParsePrefix("fd10:0:2::/120"),
	}}}
}

// make makes a plan in the pod. Its taps are closed with the test.
func (w *world) make(p podnet.Plan) {
	w.t.Helper()
	w.closeTaps()
	w.pod.Do(func() (err error) {
		w.made, w.files, err = Make(p, nil)
		return err
	})
	w.t.Cleanup(w.closeTaps)
}

func (w *world) closeTaps() {
	for _, f := range w.files {
		f.Close()
	}
	w.files = nil
}

// boot has the guest in the bridge, as its tap would.
func (w *world) boot(end podnettest.End) {
	w.t.Helper()
	end.In, end.Name = w.guest, "guest0"
	podnettest.Connect(testMTU, end, podnettest.End{In: w.pod, Name: "in-bridge"})
	w.pod.Do(func() error {
		bridge, err := netlink.LinkByName("k6t-eth0")
		if err != nil {
			return err
		}
		end, err := netlink.LinkByName("in-bridge")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(end, bridge)
	})
	w.guest.Serve(servedA)
	w.guest.Serve(servedB)
}

func (w *world) bootMasqueraded(v6 bool) {
	w.t.Helper()
	end := podnettest.End{Addresses: []string{guest4 + "/24"}, Gateways: []string{gateway4}}
	if v6 {
		end.Addresses, end.Gateways = append(end.Addresses, guest6+"/120"), append(end.Gateways, gateway6)
	}
	w.boot(end)
}

// reached wants a connection to be answered, and to be seen as from an address.
func (w *world) reached(from *podnettest.Namespace, network, address, seenAs string) {
	w.t.Helper()
	switch seen, err := from.Ask(network, address); {
	case err != nil:
		w.t.Errorf("%s %s: %v", network, address, err)
	case seen != seenAs:
		w.t.Errorf("%s %s: seen as %s, want %s", network, address, seen, seenAs)
	}
}

func (w *world) unreached(from *podnettest.Namespace, network, address string) {
	w.t.Helper()
	if seen, err := from.AskFor(shortly, network, address); err == nil {
		w.t.Errorf("%s %s: answered, to %s", network, address, seen)
	}
}

// TestMasquerade: who reaches whom, and as whom.
func TestMasquerade(t *testing.T) {
	w := newWorld(t, true)
	w.make(masqueraded())
	w.bootMasqueraded(true)
	w.node.Serve(7070)
	for range 2 { // made again, as for a container that is started again
		w.reached(w.node, "tcp", pod4+":8080", node4)
		w.reached(w.node, "udp", pod4+":9090", node4)
		w.reached(w.node, "tcp", "["+pod6+"]:8080", node6)
		w.reached(w.node, "udp", "["+pod6+"]:9090", node6)
		w.reached(w.guest, "tcp", node4+":7070", pod4)
		w.reached(w.guest, "udp", node4+":7070", pod4)
		w.reached(w.guest, "tcp", "["+node6+"]:7070", pod6)
		w.reached(w.pod, "tcp", "127.0.0.1:8080", gateway4)
		w.reached(w.pod, "tcp", pod4+":8080", pod4)
		w.reached(w.pod, "tcp", guest4+":8080", gateway4)
		w.reached(w.pod, "tcp", "["+pod6+"]:8080", pod6)
		w.reached(w.guest, "tcp", pod4+":8080", gateway4)
		w.reached(w.guest, "tcp", "["+pod6+"]:8080", gateway6)
		w.make(masqueraded())
	}
	a := w.made.Networks[0]
	if a.MTU != testMTU || a.Bridge != "k6t-eth0" || len(a.Addresses) != 2 || a.Addresses[0].String() != guest4+"/24" || a.Addresses[1].String() != guest6+"/120" {
		t.Errorf("%+v", a)
	}
	w.pod.Do(func() error {
		for _, name := range []string{"k6t-eth0", "tap-eth0"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if mtu := link.Attrs().MTU; mtu != testMTU {
				t.Errorf("%s: MTU %d, want %d", name, mtu, testMTU)
			}
			if mac := link.Attrs().HardwareAddr.String(); name == "k6t-eth0" && mac != podnet.GatewayMAC {
				t.Errorf("the gateway's MAC is %s", mac)
			}
		}
		return nil
	})
}

// TestPorts: with ports, nothing else leads to the guest, from nowhere.
func TestPorts(t *testing.T) {
	w := newWorld(t, true)
	w.make(masqueraded(podnet.Ports{Protocol: "tcp", First: 8000, Last: 8100}, podnet.Ports{Protocol: "udp", First: 9090, Last: 9090}))
	w.bootMasqueraded(true)
	for _, from := range []*podnettest.Namespace{w.node, w.guest, w.pod} {
		for _, pod := range []string{pod4, "[" + pod6 + "]"} {
			if _, err := from.Ask("tcp", pod+":8080"); err != nil {
				t.Errorf("tcp %s: %v", pod, err)
			}
			if _, err := from.Ask("udp", pod+":9090"); err != nil {
				t.Errorf("udp %s: %v", pod, err)
			}
			w.unreached(from, "tcp", pod+":9090")
			w.unreached(from, "udp", pod+":8080")
		}
	}
	w.reached(w.pod, "tcp", "127.0.0.1:8080", gateway4)
	w.unreached(w.pod, "tcp", "127.0.0.1:9090")
	// All ports again.
	w.make(masqueraded())
	w.reached(w.node, "tcp", pod4+":9090", node4)
}

// TestFenced: who is in one network with the pod can't send to the guest's own address, nor
// the guest to the pod's loopback address or with others' addresses.
func TestFenced(t *testing.T) {
	w := newWorld(t, false)
	w.make(masqueraded(podnet.Ports{Protocol: "tcp", First: servedA, Last: servedA}))
	w.bootMasqueraded(false)
	w.node.Do(func() error { return routeVia("veth0", "10.0.2.0/24", pod4) })
	w.unreached(w.node, "tcp", guest4+":9090")
	w.pod.Serve(6060)
	w.guest.Do(func() error { return loopbackVia("guest0", gateway4) })
	w.unreached(w.guest, "tcp", "127.0.0.1:6060")
	w.node.Serve(7070)
	w.guest.Do(func() error { return addAddress("guest0", "192.0.2.7/32") })
	w.node.Do(func() error { return routeVia("veth0", "192.0.2.7/32", pod4) })
	w.pod.Do(func() error { return routeVia("k6t-eth0", "192.0.2.7/32", guest4) }) // an answer would come
	if _, err := w.guest.AskFrom(shortly, "192.0.2.7", node4+":7070"); err == nil {
		t.Error("the guest reaches the node with an address that is not its own")
	}
	w.reached(w.guest, "tcp", node4+":7070", pod4)
	if w.echoed(guest4) {
		t.Error("an answer that nobody has asked for reaches the guest's own address")
	}
}

// echoed sends an ICMP echo reply from the node, and says whether the guest sees it.
func (w *world) echoed(to string) (seen bool) {
	w.t.Helper()
	var in, out net.PacketConn
	w.guest.Do(func() (err error) { in, err = net.ListenPacket("ip4:icmp", to); return err })
	defer in.Close()
	w.node.Do(func() (err error) { out, err = net.ListenPacket("ip4:icmp", node4); return err })
	defer out.Close()
	reply := []byte{0, 0, 0xff, 0xff, 0, 0, 0, 0} // type 0 with its checksum (RFC 792)
	if _, err := out.WriteTo(reply, &net.IPAddr{IP: net.ParseIP(to)}); err != nil {
		w.t.Fatal(err)
	}
	if err := in.SetReadDeadline(time.Now().Add(shortly)); err != nil {
		w.t.Fatal(err)
	}
	_, _, err := in.ReadFrom(make([]byte, 64))
	return err == nil
}

// TestWithoutIPv6: where the pod has no IPv6 address the guest has no gateway.
func TestWithoutIPv6(t *testing.T) {
	w := newWorld(t, false)
	w.make(masqueraded())
	if n := len(w.made.Networks[0].Addresses); n != 1 {
		t.Errorf("%d addresses for the guest", n)
	}
	w.pod.Do(func() error {
		link, err := netlink.LinkByName("k6t-eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if len(addrs) != 0 {
			t.Errorf("the bridge has %v", addrs)
		}
		return err
	})
}

// TestBridge: the guest has the pod's MAC and addresses, and the pod answers for none of them.
func TestBridge(t *testing.T) {
	w := newWorld(t, true)
	plan := podnet.Plan{Networks: []podnet.Network{{Binding: podnet.Bridge, Interface: "eth0"}}}
	w.make(plan)
	first := w.made.Networks[0]
	w.boot(podnettest.End{MAC: first.MAC, Addresses: []string{pod4 + "/24", pod6 + "/64"}, Gateways: []string{node4, node6}})
	w.node.Serve(7070)
	w.pod.Serve(6060)
	for range 2 {
		a := w.made.Networks[0]
		if a.MAC != podMAC || a.MTU != testMTU || len(a.Addresses) != 2 || a.Addresses[0].String() != pod4+"/24" {
			t.Errorf("%+v", a)
		}
		want := []podnet.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr(node4)}, {Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr(node6)}}
		if len(a.Routes) != 2 || a.Routes[0] != want[0] || a.Routes[1] != want[1] {
			t.Errorf("routes %v", a.Routes)
		}
		w.reached(w.node, "tcp", pod4+":8080", node4)
		w.reached(w.node, "tcp", "["+pod6+"]:8080", node6)
		w.reached(w.guest, "tcp", node4+":7070", pod4)
		w.unreached(w.node, "tcp", pod4+":6060") // the pod's own
		w.make(plan)
	}
}

// TestBridgeToGateway: where a network plugin has the pod send all to its gateway, so does the
// guest, also after the bridge was made again.
func TestBridgeToGateway(t *testing.T) {
	w := newWorld(t, false)
	w.pod.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		_, network, err := net.ParseCIDR(pod4 + "/24")
		if err != nil {
			return err
		}
		// As CNI's ptp does.
		onLink := netlink.Route{LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: net.ParseIP(node4).To4(), Mask: net.CIDRMask(32, 32)}, Scope: netlink.SCOPE_LINK}
		return errors.Join(netlink.RouteAdd(&onLink), netlink.RouteDel(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: network, Scope: netlink.SCOPE_LINK}), routeVia("eth0", network.String(), node4))
	})
	plan := podnet.Plan{Networks: []podnet.Network{{Binding: podnet.Bridge, Interface: "eth0"}}}
	for range 2 {
		w.make(plan)
		a := w.made.Networks[0]
		if len(a.Addresses) != 1 || a.Addresses[0].String() != pod4+"/32" {
			t.Errorf("addresses %v", a.Addresses)
		}
		if got, want := fmt.Sprint(a.Routes), "[{0.0.0.0/0 10.244.0.1} {10.244.0.0/24 10.244.0.1} {10.244.0.1/32 invalid IP}]"; got != want {
			t.Errorf("routes %s, want %s", got, want)
		}
	}
}

// TestListsOfOthers: what other interfaces have, however much, is not the guest's.
func TestListsOfOthers(t *testing.T) {
	w := newWorld(t, false)
	w.pod.Do(func() error {
		for i := range 2 * podnet.MaxAddresses {
			if err := addAddress("lo", fmt.Sprintf("192.0.2.%d/32", i+1)); err != nil {
				return err
			}
		}
		return nil
	})
	w.make(podnet.Plan{Networks: []podnet.Network{{Binding: podnet.Bridge, Interface: "eth0"}}})
	if got := fmt.Sprint(w.made.Networks[0].Addresses); got != "["+pod4+"/24]" {
		t.Errorf("addresses %s", got)
	}
}

// TestAgain: a list that others keep changing is given up, for now.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		tries   int
		passing bool
	}{
		"good":        {nil, 1, false},
		"interrupted": {netlink.ErrDumpInterrupted, triesAtMost, true},
		"other":       {errors.New("no"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			err := again(func() error { tries++; return c.err })
			if !errors.Is(err, c.err) || tries != c.tries || podnet.IsPassing(err) != c.passing {
				t.Errorf("%v after %d tries", err, tries)
			}
		})
	}
}

// TestTapInUse: whoever has the tap may be ending.
func TestTapInUse(t *testing.T) {
	w := newWorld(t, false)
	w.make(masqueraded())
	err := w.pod.In(func() error {
		_, _, err := Make(masqueraded(), nil)
		return err
	})
	if !podnet.IsPassing(err) {
		t.Errorf("%v, want a passing error", err)
	}
}

// TestHostileNamespace: what a pod has put into its namespace is an error in words, and in
// good time.
func TestHostileNamespace(t *testing.T) {
	bridge := func(name string) netlink.Link {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return &netlink.Bridge{LinkAttrs: attrs}
	}
	for name, c := range map[string]struct {
		do   func() error
		want string
	}{
		"a bridge that is none": {func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "k6t-eth0"
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "other"})
		}, "no bridge"},
		"a tap of that name": {func() error { return netlink.LinkAdd(bridge("tap-eth0")) }, "TUNSETIFF"},
		"many addresses": {func() error {
			for i := range podnet.MaxAddresses {
				if err := addAddress("eth0", fmt.Sprintf("192.0.2.%d/32", i+1)); err != nil {
					return err
				}
			}
			return nil
		}, "its addresses: more than 16"},
		"many addresses of one network": {func() error {
			for i := range podnet.MaxAddresses {
				if err := addAddress("eth0", fmt.Sprintf("10.244.0.%d/24", i+100)); err != nil {
					return err
				}
			}
			return nil
		}, "its addresses: more than 16"},
		"many routes": {func() error {
			for i := range podnet.MaxRoutes {
				if err := routeVia("eth0", fmt.Sprintf("192.0.2.%d/32", i+1), node4); err != nil {
					return err
				}
			}
			return nil
		}, "its routes: more than 64"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			w.pod.Do(c.do)
			err := w.pod.In(func() error {
				_, files, err := Make(masqueraded(), nil)
				for _, f := range files {
					f.Close()
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestMost: the kernel makes the most of everything that a plan may have.
func TestMost(t *testing.T) {
	node, pod := podnettest.New(t), podnettest.New(t)
	plan := masqueraded()
	for n := range podnet.MaxPorts {
		plan.Networks[0].Ports = append(plan.Networks[0].Ports, podnet.Ports{Protocol: "tcp", First: uint16(2*n + 1), Last: uint16(2*n + 1)})
	}
	for n := len(plan.Networks); n < podnet.MaxNetworks; n++ {
		plan.Networks = append(plan.Networks, podnet.Network{Binding: podnet.Bridge, Interface: fmt.Sprintf("net%d", n), Fenced: n == 1})
	}
	for left := podnet.MaxFiles - podnet.MaxNetworks*(lease.SocketCount+1); left > 0; {
		for n := range plan.Networks {
			queues := min(left, podnet.MaxQueues-1)
			plan.Networks[n].Queues, left = queues+1, left-queues
		}
	}
	if err := plan.Check(); err != nil {
		t.Fatal(err)
	}
	for i, n := range plan.Networks {
		end := podnettest.End{In: pod, Name: n.Interface}
		for a := range podnet.MaxAddresses / 2 {
			end.Addresses = append(end.Addresses, fmt.Sprintf("10.%d.0.%d/24", 100+i, a+1), fmt.Sprintf("fd00:%d::%d/64", i+1, a+1))
		}
		podnettest.Connect(testMTU, podnettest.End{In: node, Name: fmt.Sprintf("veth%d", i)}, end)
	}
	pod.Do(func() error {
		made, files, err := Make(plan, nil)
		for _, f := range files {
			f.Close()
		}
		if len(made.Networks) != podnet.MaxNetworks {
			t.Errorf("%d networks were made, want %d", len(made.Networks), podnet.MaxNetworks)
		}
		return err
	})
}
