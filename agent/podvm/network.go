package podvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/podnet"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// networkMaker makes guests' networks in pods' network namespaces: a *helper.Client.
type networkMaker interface {
	// Refused says why this node lets none be made; nil: it does.
	Refused(ctx context.Context) error
	// Make makes a plan. The files are the caller's: for each network its taps, then its
	// lease.SocketCount sockets.
	Make(ctx context.Context, namespace *os.File, p podnet.Plan) (podnet.Made, []*os.File, error)
}

// networkPatience is how long it may take: others' networks may be made at the time.
const networkPatience = 2 * time.Minute

// errNoHelper: no helper makes networks.
var errNoHelper = errors.New("network.helper is false in the configuration of the node's agent")

// guestNetworks is what was made of a pod's network for its guest. The zero value is nothing.
type guestNetworks struct {
	// limited is why the guest has the VMM's own network in place of its pod's.
	limited error
	// places are those of the specification's networks, one for each of made.
	places []int
	made   podnet.Made
	files  []*os.File
	// vhost is the first of each interface's descriptors of /dev/vhost-net; -1, or none at
	// all: none.
	vhost []int
}

func (g *guestNetworks) close() {
	for _, f := range g.files {
		f.Close() // the VMM and the shim have theirs
	}
}

// connect makes the guest's networks in the pod. It returns the specification with what
// follows from them: MACs, and the VMM's own network where nobody may make one.
func (p *Runner) connect(ctx context.Context, h *placement, s *specv1.VirtualMachineSpec, id string) (*specv1.VirtualMachineSpec, error) {
	s = proto.CloneOf(s)
	plan, places, err := networkPlan(s, id)
	if err != nil || len(places) == 0 {
		return s, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, networkPatience, fmt.Errorf("it took longer than %v", networkPatience))
	defer cancel()
	switch err := p.networksRefused(ctx); {
	case podnet.IsPassing(err):
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	case err != nil:
		h.guest = guestNetworks{limited: err}
		return s, fallBack(s, places, err)
	}
	ns, err := p.namespace(h.shimID)
	if err != nil {
		return nil, fmt.Errorf("the pod's network: %w", err)
	}
	defer ns.Close()
	made, files, err := p.networks.Make(ctx, ns, plan)
	h.guest = guestNetworks{places: places, made: made, files: files}
	if err == nil && len(made.Networks) != len(places) {
		h.guest.close()
		err = fmt.Errorf("%d networks were made of %d", len(made.Networks), len(places))
	}
	if podnet.IsPassing(err) {
		err = fmt.Errorf("%w: %w", errNotYet, err)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting the guest to the pod's network: %w", err)
	}
	for i, at := range places {
		s.Networks[at].Mac = made.Networks[i].MAC
	}
	if err := h.guest.openVhost(s, h.allocated, vhostNet); err != nil {
		h.guest.close()
		return nil, err
	}
	return s, nil
}

func (p *Runner) networksRefused(ctx context.Context) error {
	if p.networks == nil {
		return errNoHelper
	}
	return p.networks.Refused(ctx)
}

// limitation is why a guest that an earlier agent has launched has the VMM's own network;
// nil: it has not, or only the earlier agent knew.
func (p *Runner) limitation(ctx context.Context, s *specv1.VirtualMachineSpec) error {
	if !slices.ContainsFunc(s.GetNetworks(), func(n *specv1.NetworkInterface) bool { return n.GetUser() != nil }) {
		return nil
	}
	return p.networksRefused(ctx)
}

// networkPlan is what is to be made, and which networks of the specification that is for.
func networkPlan(s *specv1.VirtualMachineSpec, id string) (plan podnet.Plan, places []int, err error) {
	for i, n := range s.GetNetworks() {
		p := n.GetPod()
		if p == nil {
			continue
		}
		planned := podnet.Network{
			Binding: podnet.Binding(cmp.Or(p.GetBinding(), spec.BindingMasquerade)), Interface: cmp.Or(p.GetInterface(), spec.DefaultPodInterface),
			MAC: n.GetMac(), Queues: max(int(p.GetQueues()), 1),
		}
		// What another network lets its guests send is that network's affair.
		planned.Fenced = planned.Binding == podnet.Bridge && planned.Interface == spec.DefaultPodInterface
		if planned.Binding == podnet.Masquerade {
			planned.MAC = cmp.Or(planned.MAC, spec.MAC(id, i))
			if planned.CIDR, err = netip.ParsePrefix(cmp.Or(p.GetCidr(), spec.DefaultPodCIDR)); err != nil {
				return plan, nil, fault.Invalid(fmt.Sprintf("networks[%d].pod.cidr", i), "%v", err)
			}
			if planned.IPv6CIDR, err = netip.ParsePrefix(cmp.Or(p.GetIpv6Cidr(), spec.DefaultPodIPv6CIDR)); err != nil {
				return plan, nil, fault.Invalid(fmt.Sprintf("networks[%d].pod.ipv6Cidr", i), "%v", err)
			}
		}
		for _, r := range p.GetPorts() {
			planned.Ports = append(planned.Ports, podnet.Ports{
				Protocol: cmp.Or(r.GetProtocol(), spec.ProtocolTCP), First: uint16(r.GetFirst()), Last: uint16(cmp.Or(r.GetLast(), r.GetFirst())),
			})
		}
		plan.Networks, places = append(plan.Networks, planned), append(places, i)
	}
	return plan, places, nil
}

// fallBack gives the guest the VMM's own networks, where the specification has such.
func fallBack(s *specv1.VirtualMachineSpec, places []int, why error) error {
	for _, i := range places {
		n := s.Networks[i]
		if n.GetPod().GetFallback() == nil {
			return fault.InField(codes.FailedPrecondition, fmt.Sprintf("networks[%d].pod", i), "%w; QEMU's user-mode network can take its place only with %s, QEMU, at most %d ports, a network (vmNetworkCIDR) of /%d or larger and a link that is not down (state)",
				why, spec.BindingMasquerade, spec.MaxPorts, spec.MaxUserPrefix)
		}
		n.Backend = &specv1.NetworkInterface_User{User: n.GetPod().GetFallback()}
	}
	return nil
}

// number says which descriptors of a launch are the guest's taps, and which is cloud-init's
// seed: after all of them.
func (g *guestNetworks) number(s *specv1.VirtualMachineSpec) (taps []int, seed int) {
	taps = make([]int, len(s.GetNetworks()))
	for i := range taps {
		taps[i] = -1
	}
	next := 0
	for i, at := range g.places {
		if at < len(taps) {
			taps[at] = next
		}
		next += g.made.Networks[i].Taps + lease.SocketCount
	}
	if s.GetCloudInit() == nil {
		return taps, -1
	}
	return taps, len(g.files)
}

// leases returns the addresses and options that the shim offers the guest, one lease a network.
func (g *guestNetworks) leases(s *specv1.VirtualMachineSpec) (all []shim.Lease, err error) {
	next := 0
	for i, at := range g.places {
		made := g.made.Networks[i]
		// The device by the name that VMMs' planners give it, by its slot.
		l := shim.Lease{Device: fmt.Sprintf("net%d", spec.Slot(s.GetNetworks(), at)), Index: next + made.Taps}
		if l.Config, err = leaseOf(s.GetNetworks()[at], made); err != nil {
			return nil, fault.Invalid(fmt.Sprintf("networks[%d].pod", at), "%v", err)
		}
		all = append(all, l)
		next = l.Index + lease.SocketCount
	}
	return all, nil
}

// routerLinkLocal follows from podnet.GatewayMAC (RFC 4291, appendix A).
var routerLinkLocal = netip.MustParseAddr("fe80::ff:fe00:0")

// leaseOf returns the lease of one network.
func leaseOf(n *specv1.NetworkInterface, a podnet.Attached) (lease.Config, error) {
	mac, err := lease.ParseMAC(n.GetMac())
	if err != nil {
		return lease.Config{}, err
	}
	d := n.GetPod().GetDhcp()
	c := lease.Config{MAC: mac, MTU: a.MTU, Hostname: d.GetHostname(), SearchDomains: d.GetSearchDomains()}
	bridged := n.GetPod().GetBinding() == spec.BindingBridge
	for i, address := range a.Addresses {
		switch {
		case address.Addr().Is4() && c.V4 == nil:
			if c.V4, err = leaseV4(d, address); err != nil {
				return lease.Config{}, err
			}
			if bridged {
				c.V4.Server = a.Gateways[0]
			} else {
				c.V4.Server, c.V4.Gateway = a.Gateways[i], a.Gateways[i]
			}
		case address.Addr().Is6() && c.V6 == nil && bridged:
			c.V6 = &lease.V6{Address: address, Router: routerLinkLocal}
		case address.Addr().Is6() && c.V6 == nil:
			gateway, err := lease.ParseMAC(podnet.GatewayMAC)
			if err != nil {
				return lease.Config{}, err
			}
			c.V6 = &lease.V6{Address: address, Router: routerLinkLocal, RouterMAC: gateway, DefaultRoute: true}
		}
	}
	if bridged {
		leaseRoutes(&c, a.Routes)
	}
	return c, nil
}

func leaseV4(d *specv1.DHCPOptions, address netip.Prefix) (*lease.V4, error) {
	v4 := &lease.V4{Address: address, BootFile: d.GetBootFile(), TFTPServer: d.GetTftpServer()}
	for _, text := range d.GetNtpServers() {
		server, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		v4.NTPServers = append(v4.NTPServers, server)
	}
	for _, o := range d.GetPrivate() {
		v4.Private = append(v4.Private, lease.Option{Code: int(o.GetOption()), Value: o.GetValue()})
	}
	return v4, nil
}

// leaseRoutes are those of the pod's interface, for a guest that has taken its place. A
// router of IPv6 is one that is on the link: no other can be advertised.
func leaseRoutes(c *lease.Config, routes []podnet.Route) {
	for _, r := range routes {
		everything := r.Destination.Bits() == 0
		switch {
		case r.Destination.Addr().Is4() && c.V4 != nil && everything && !c.V4.Gateway.IsValid():
			c.V4.Gateway = r.Gateway
		case r.Destination.Addr().Is4() && c.V4 != nil:
			c.V4.Routes = append(c.V4.Routes, lease.Route{To: r.Destination, Via: r.Gateway})
		case r.Destination.Addr().Is6() && c.V6 != nil && everything && r.Gateway.IsLinkLocalUnicast():
			c.V6.Router, c.V6.DefaultRoute = r.Gateway, true
		}
	}
}

// networkNamespace opens that of a very process. It must be a pod's own: where the node's is
// the pod's, too (hostNetwork), guests would change the node's.
func networkNamespace(p shim.ShimProcess) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil {
		return nil, err
	}
	if err := checkNamespace(ns, "/proc/self/ns/net", "/proc/1/ns/net"); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	if err := stillThere(p); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

func checkNamespace(ns *os.File, forbidden ...string) error {
	st, err := ns.Stat()
	if err != nil {
		return err
	}
	for _, path := range forbidden {
		other, err := os.Stat(path)
		if errors.Is(err, os.ErrPermission) {
			continue // a process that isn't the node's first, where it is hidden
		}
		if err != nil {
			return err
		}
		if os.SameFile(st, other) {
			return fault.Errorf(codes.FailedPrecondition, "the pod has the node's own network (hostNetwork), which no guest is connected to: leave that out")
		}
	}
	return nil
}
