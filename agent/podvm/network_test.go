package podvm

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/podnet"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
)

// fakeNetworks makes no networks, and says that it has.
type fakeNetworks struct {
	t       *testing.T
	refused error
	err     error
	passing int  // so many calls fail for now
	fewer   bool // one network is left out of what was made
	plans   []podnet.Plan
	files   []*os.File
}

func (f *fakeNetworks) Refused(context.Context) error { return f.refused }

func (f *fakeNetworks) Make(_ context.Context, ns *os.File, p podnet.Plan) (made podnet.Made, files []*os.File, err error) {
	if ns == nil {
		f.t.Error("no namespace")
	}
	f.plans = append(f.plans, p)
	if len(f.plans) <= f.passing {
		return made, nil, podnet.PassingError{Err: errors.New("the tap is in use")}
	}
	if f.err != nil {
		return made, nil, f.err
	}
	for _, n := range p.Networks {
		a := podnet.Attached{Bridge: n.BridgeName(), MAC: n.MAC, MTU: 1450, Taps: 1}
		if n.Binding == podnet.Bridge {
			a.MAC = "0a:58:0a:f4:00:05"
		} else {
			a.Addresses = []netip.Prefix{netip.PrefixFrom(podnet.Guest(n.CIDR), n.CIDR.Bits())}
			a.Gateways = []netip.Addr{podnet.Gateway(n.CIDR)}
		}
		made.Networks = append(made.Networks, a)
		for range 1 + lease.SocketCount {
			r, w, err := os.Pipe()
			if err != nil {
				f.t.Fatal(err)
			}
			w.Close()
			files = append(files, r)
		}
	}
	f.files = append(f.files, files...)
	if f.fewer {
		made.Networks = made.Networks[1:]
	}
	return made, files, nil
}

func (f *fakeNetworks) closed() bool {
	return !slices.ContainsFunc(f.files, func(f *os.File) bool {
		_, err := f.Stat()
		return err == nil
	})
}

// serveNetworks has an agent serve the pod, with what makes networks.
func (n *fakeNode) serveNetworks(t *testing.T, a *testAgent, networks networkMaker) {
	t.Helper()
	p := n.runner(a)
	p.networks = networks
	p.namespace = func(shim.ShimProcess) (*os.File, error) { return os.Open(os.DevNull) }
	n.serveWith(t, a, p)
}

func specified(text string) func(*vmtest.Pod) {
	return func(p *vmtest.Pod) { p.Described.Specification = []byte(podSpec + text) }
}

// TestPodNetwork: the guest's network is made before it is planned; what follows from it is
// in the specification, and the taps go with the launch.
func TestPodNetwork(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	networks := &fakeNetworks{t: t}
	n.serveNetworks(t, a, networks)
	proc := n.container(specified("cloudInit: {userData: a}\nnetworks: [{pod: {ports: [{first: 80}, {protocol: udp, first: 1, last: 9}]}}, {pod: {binding: bridge, interface: net1}}]\n"))
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	want := podnet.Plan{Networks: []podnet.Network{
		{Binding: podnet.Masquerade, Interface: "eth0", MAC: spec.MAC(podUID, 0), CIDR: netip.MustParsePrefix("10.0.2.0/24"), IPv6CIDR: netip.MustParsePrefix("fd10:0:2::/120"), Ports: []podnet.Ports{{Protocol: "tcp", First: 80, Last: 80}, {Protocol: "udp", First: 1, Last: 9}}, Queues: 1},
		{Binding: podnet.Bridge, Interface: "net1", Queues: 1},
	}}
	if len(networks.plans) != 1 || !reflect.DeepEqual(networks.plans[0], want) {
		t.Errorf("plans %+v, want %+v", networks.plans, want)
	}
	m, _ := a.Get(t.Context(), podVM)
	effective := m.Snapshot().GetStatus().GetEffectiveSpec().GetNetworks()
	if got := effective[0].GetMac(); got != spec.MAC(podUID, 0) {
		t.Errorf("the first MAC is %s", got)
	}
	if got := effective[1].GetMac(); got != "0a:58:0a:f4:00:05" {
		t.Errorf("the bridged guest's MAC is %s, and not its pod's", got)
	}
	if got := m.Snapshot().GetStatus().GetNetworkLimited(); got != "" {
		t.Errorf("limited: %s", got)
	}
	vmtest.Eventually(t, "the agent's descriptors are closed", networks.closed)
	var first []int // of the sockets
	for _, l := range proc.Pod.Launched.Leases {
		first = append(first, l.Index)
	}
	if want := []int{1, 2 + lease.SocketCount}; !slices.Equal(first, want) {
		t.Errorf("sockets begin at %v, want %v", first, want)
	}
}

// TestPodNetworkRefused: without anybody who makes networks a guest has the VMM's own, if its
// specification has one, and the record says why.
func TestPodNetworkRefused(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.serveNetworks(t, a, nil)
	n.container(specified("networks: [{pod: {fallback: {ports: [{hostPort: 80, guestPort: 80}]}}}]\n"))
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	status := m.Snapshot().GetStatus()
	if got := status.GetEffectiveSpec().GetNetworks()[0].GetUser().GetPorts(); len(got) != 1 {
		t.Errorf("forwarded ports %v", got)
	}
	wantText(t, status.GetNetworkLimited(), "network.helper")
}

// TestPodNetworkFails: a guest that can't have its network is not started, and its pod's owner
// learns why.
func TestPodNetworkFails(t *testing.T) {
	for name, test := range map[string]struct {
		networks *fakeNetworks
		spec     string
		want     []string
	}{
		"no fallback": {&fakeNetworks{refused: errors.New("no module tun")}, "{pod: {binding: bridge}}", []string{"networks[0].pod", "no module tun", "masquerade", "QEMU", "64 ports", "/29", "down"}},
		"not made":    {&fakeNetworks{err: errors.New("there is no interface eth0")}, "{pod: {fallback: {}}}", []string{"pod's network", "no interface eth0"}},
		"one missing": {&fakeNetworks{fewer: true}, "{pod: {}}", []string{"0 networks were made of 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			test.networks.t = t
			n.serveNetworks(t, a, test.networks)
			proc := n.container(specified("networks: [" + test.spec + "]\n"))
			vmtest.Eventually(t, "it is refused", func() bool { return !proc.Alive() })
			wantText(t, proc.Pod.Refusal, test.want...)
			if !test.networks.closed() {
				t.Error("descriptors are left open")
			}
		})
	}
}

// TestPodNetworkNotYet: trouble that passes does not end a pod's VM.
func TestPodNetworkNotYet(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	networks := &fakeNetworks{t: t, passing: 2}
	n.serveNetworks(t, a, networks)
	proc := n.container(specified("networks: [{pod: {}}]\n"))
	vmtest.Eventually(t, "it runs, or never", func() bool { return a.is(lifecycle.Running)() || !proc.Alive() })
	if !proc.Alive() {
		t.Fatal(proc.Pod.Refusal)
	}
	if len(networks.plans) != 3 {
		t.Errorf("%d plans", len(networks.plans))
	}
}

// TestLeaseOf: a lease follows from the specification and from the network that was made.
func TestLeaseOf(t *testing.T) {
	mac, err := lease.ParseMAC("52:54:00:00:00:01")
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := lease.ParseMAC(podnet.GatewayMAC)
	if err != nil {
		t.Fatal(err)
	}
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	network := func(binding string) *specv1.NetworkInterface {
		return &specv1.NetworkInterface{Mac: mac.String(), Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: binding, Dhcp: &specv1.DHCPOptions{
			Hostname: "web", SearchDomains: []string{"a.b"}, NtpServers: []string{"192.0.2.1"}, BootFile: "f", TftpServer: "s", Private: []*specv1.PrivateDHCPOption{{Option: 224, Value: "v"}},
		}}}}
	}
	v4 := func(change func(*lease.V4)) *lease.V4 {
		v := &lease.V4{NTPServers: []netip.Addr{addr("192.0.2.1")}, BootFile: "f", TFTPServer: "s", Private: []lease.Option{{Code: 224, Value: "v"}}}
		change(v)
		return v
	}
	for name, c := range map[string]struct {
		n    *specv1.NetworkInterface
		made podnet.Attached
		want lease.Config
	}{
		"masquerade": {network("masquerade"),
			podnet.Attached{MTU: 1450, Addresses: []netip.Prefix{prefix("10.0.2.2/24"), prefix("fd10:0:2::2/120")}, Gateways: []netip.Addr{addr("10.0.2.1"), addr("fd10:0:2::1")}},
			lease.Config{MAC: mac, MTU: 1450, Hostname: "web", SearchDomains: []string{"a.b"},
				V4: v4(func(v *lease.V4) {
					v.Address, v.Server, v.Gateway = prefix("10.0.2.2/24"), addr("10.0.2.1"), addr("10.0.2.1")
				}),
				V6: &lease.V6{Address: prefix("fd10:0:2::2/120"), Router: addr("fe80::ff:fe00:0"), RouterMAC: gateway, DefaultRoute: true}}},
		"bridge": {network("bridge"),
			podnet.Attached{MTU: 1500, Addresses: []netip.Prefix{prefix("10.244.0.5/24"), prefix("fd00::5/64")}, Gateways: []netip.Addr{addr("169.254.75.10")}, Routes: []podnet.Route{
				{Destination: prefix("169.254.1.1/32")}, {Destination: prefix("0.0.0.0/0"), Gateway: addr("169.254.1.1")}, {Destination: prefix("::/0"), Gateway: addr("fe80::7")},
			}},
			lease.Config{MAC: mac, MTU: 1500, Hostname: "web", SearchDomains: []string{"a.b"},
				V4: v4(func(v *lease.V4) {
					v.Address, v.Server, v.Gateway = prefix("10.244.0.5/24"), addr("169.254.75.10"), addr("169.254.1.1")
					v.Routes = []lease.Route{{To: prefix("169.254.1.1/32")}}
				}),
				V6: &lease.V6{Address: prefix("fd00::5/64"), Router: addr("fe80::7"), DefaultRoute: true}}},
		"layer 2 alone": {network("bridge"), podnet.Attached{MTU: 9000, Gateways: []netip.Addr{addr("169.254.75.11")}},
			lease.Config{MAC: mac, MTU: 9000, Hostname: "web", SearchDomains: []string{"a.b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := leaseOf(c.n, c.made)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v %+v %+v, want %+v %+v %+v", got, got.V4, got.V6, c.want, c.want.V4, c.want.V6)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOwnNamespaceIsRefused: a pod on the node's network would have the node's rules changed.
func TestOwnNamespaceIsRefused(t *testing.T) {
	self, err := shim.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := networkNamespace(self)
	if err == nil {
		ns.Close()
		t.Fatal("it is opened")
	}
	wantText(t, err.Error(), "hostNetwork")
}

// TestPodNetworkRestored: a saved guest has the same addresses and MAC in another pod, whose
// network is made again; one that is bridged can't be saved, as its address goes with its pod.
func TestPodNetworkRestored(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	networks := &fakeNetworks{t: t}
	n.serveNetworks(t, a, networks)
	n.container(specified("networks: [{pod: {}}]\n"))
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	dir := filepath.Join(t.TempDir(), "one")
	if _, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: dir}, nil); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is saved", a.is(lifecycle.Saved))
	manifest, err := os.ReadFile(filepath.Join(dir, memory.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	restored := n.container(func(p *vmtest.Pod) {
		p.Described.Specification = nil
		p.Described.Restore = &shim.PodRestore{Directory: "/saved/one", Manifest: manifest}
	})
	vmtest.Eventually(t, "it runs again, or never", func() bool { return a.is(lifecycle.Running)() || !restored.Alive() })
	if !restored.Alive() {
		t.Fatal(restored.Pod.Refusal)
	}
	if len(networks.plans) != 2 || !reflect.DeepEqual(networks.plans[0], networks.plans[1]) {
		t.Errorf("plans %+v", networks.plans)
	}
	if got := restored.Pod.Launched.Leases; len(got) != 1 || got[0].Config.V4.Address.String() != "10.0.2.2/24" {
		t.Errorf("the guest is told %+v", got)
	}
}

// TestBridgedIsNotSaved: its address is its pod's.
func TestBridgedIsNotSaved(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.serveNetworks(t, a, &fakeNetworks{t: t})
	n.container(specified("networks: [{pod: {binding: bridge}}]\n"))
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	_, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: filepath.Join(t.TempDir(), "one")}, nil)
	if err == nil {
		t.Fatal("it was saved")
	}
	wantText(t, err.Error(), "networks[0].pod.binding", "masquerade")
}

// TestLimitedIsAdopted: why a guest has less of a network is known to the next agent, too.
func TestLimitedIsAdopted(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	first := w.start()
	n.serveNetworks(t, first, nil)
	n.container(specified("networks: [{pod: {fallback: {}}}]\n"))
	vmtest.Eventually(t, "it runs", first.is(lifecycle.Running))
	first.end()
	second := w.start()
	n.serveNetworks(t, second, nil)
	vmtest.Eventually(t, "it is adopted", second.is(lifecycle.Running))
	m, _ := second.Get(t.Context(), podVM)
	wantText(t, m.Snapshot().GetStatus().GetNetworkLimited(), "network.helper")
}

// TestFencedNetworks: a guest on the pod network itself is kept to its own addresses, on other networks it is not.
func TestFencedNetworks(t *testing.T) {
	for _, c := range []struct {
		binding, podInterface string
		want                  bool
	}{{"bridge", "", true}, {"bridge", "eth0", true}, {"bridge", "net1", false}, {"masquerade", "eth0", false}} {
		s := &specv1.VirtualMachineSpec{Networks: []*specv1.NetworkInterface{{
			Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: c.binding, Interface: c.podInterface}},
		}}}
		plan, _, err := networkPlan(s, podUID)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Networks[0].Fenced; got != c.want {
			t.Errorf("%s on %q: fenced %v, want %v", c.binding, c.podInterface, got, c.want)
		}
	}
}
