package guest

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/multus"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// What is kept of the guest's own word.
const (
	maxGuestInterfaces = 16 // beside those of the specification
	maxAddresses       = 16 // an interface
)

// Who reported an interface, as KubeVirt spells it.
const (
	fromDomain = "domain"
	fromAgent  = "guest-agent"
	fromMultus = "multus-status"
)

// count is a number of the agent's in a field that the API server bounds.
func count(n uint32) int32 { return int32(max(1, min(n, 1<<16))) }

// interfacesOf are the interfaces of the guest, the one on the pod's default network before all others. Its first
// address is the pod's: there the guest is reached, whatever address it has itself.
func interfacesOf(v *view.View, vm *nodev1.VirtualMachine) []kubevirtv1.InterfaceStatus {
	reported, networks := vm.GetStatus().GetGuest().GetInterfaces(), multus.Status(v.Pod.Annotations[multus.AnnotationStatus])
	hidden := internal(vm.GetStatus().GetEffectiveSpec())
	var first, all []kubevirtv1.InterfaceStatus
	matched := make(map[*nodev1.GuestInterface]bool)
	for i, wanted := range v.Instance.Spec.Domain.Devices.Interfaces {
		network := networkOf(vm.GetStatus().GetEffectiveSpec(), wanted.Name, i)
		s := kubevirtv1.InterfaceStatus{
			Name: wanted.Name, MAC: wanted.MACAddress, InfoSource: fromDomain,
			LinkState: linkState(network), QueueCount: count(network.GetPod().GetQueues()),
		}
		if mac := network.GetMac(); mac != "" {
			s.MAC = condition.Clip(mac, condition.MaxGuestText)
		}
		isDefault := inPod(v, &s, networks)
		at := slices.IndexFunc(reported, func(g *nodev1.GuestInterface) bool { return s.MAC != "" && strings.EqualFold(g.GetMac(), s.MAC) })
		if at >= 0 {
			matched[reported[at]] = true
			s.InfoSource = strings.Replace(s.InfoSource, fromDomain, fromDomain+", "+fromAgent, 1)
			s.InterfaceName = condition.Clip(reported[at].GetName(), condition.MaxGuestText)
			s.IPAddresses = addresses(s.IPAddresses, reported[at], hidden)
		}
		if len(s.IPAddresses) > 0 {
			s.IPAddress = s.IPAddresses[0]
		}
		if isDefault {
			first = append(first, s)
		} else {
			all = append(all, s)
		}
	}
	all = append(first, all...)
	extra := 0
	for _, g := range reported {
		if matched[g] || g.GetName() == "lo" || extra == maxGuestInterfaces {
			continue
		}
		extra++
		all = append(all, made(g, hidden))
	}
	return all
}

// inPod fills in what an interface is in the pod: the default one has the pod's addresses, at
// which nobody answers while its link is down; the others have those that Multus says.
func inPod(v *view.View, s *kubevirtv1.InterfaceStatus, networks []multus.Network) (isDefault bool) {
	at := slices.IndexFunc(v.Instance.Spec.Networks, func(n kubevirtv1.Network) bool { return n.Name == s.Name })
	if at < 0 {
		return false
	}
	network := &v.Instance.Spec.Networks[at]
	s.PodInterfaceName = multus.Interface(network)
	if multus.IsDefault(network) {
		if s.LinkState != linkDown {
			s.IPAddresses = podAddresses(v.Pod.Pod)
		}
		return true
	}
	if got, has := multus.Find(networks, s.PodInterfaceName); has {
		s.InfoSource += ", " + fromMultus
		s.MAC = cmp.Or(s.MAC, got.MAC)
		for _, a := range got.Addresses {
			s.IPAddresses = append(s.IPAddresses, a.String())
		}
	}
	return false
}

const linkUp, linkDown = "up", "down"

func linkState(n *specv1.NetworkInterface) string {
	if n.GetPod().GetLinkDown() {
		return linkDown
	}
	return linkUp
}

// made is an interface that the guest has made itself.
func made(g *nodev1.GuestInterface, hidden []netip.Prefix) kubevirtv1.InterfaceStatus {
	s := kubevirtv1.InterfaceStatus{
		MAC: condition.Clip(g.GetMac(), condition.MaxGuestText), InterfaceName: condition.Clip(g.GetName(), condition.MaxGuestText), InfoSource: fromAgent,
		IPAddresses: addresses(nil, g, hidden),
	}
	if len(s.IPAddresses) > 0 {
		s.IPAddress = s.IPAddresses[0]
	}
	return s
}

// networkOf is an interface of the specification by its name, else by its place.
func networkOf(spec *specv1.VirtualMachineSpec, name string, i int) *specv1.NetworkInterface {
	for _, n := range spec.GetNetworks() {
		if n.GetName() == name {
			return n
		}
	}
	if i < len(spec.GetNetworks()) {
		return spec.GetNetworks()[i]
	}
	return nil
}

func podAddresses(p *corev1.Pod) []string {
	var all []string
	for _, ip := range p.Status.PodIPs {
		all = append(all, ip.IP)
	}
	if all == nil && p.Status.PodIP != "" {
		all = []string{p.Status.PodIP}
	}
	return all
}

// internal are the networks behind a NAT, the pod's or the VMM's own: nobody reaches the guest
// at an address in them, whichever of its interfaces has it.
func internal(vm *specv1.VirtualMachineSpec) (hidden []netip.Prefix) {
	var cidrs []string
	for _, n := range vm.GetNetworks() {
		switch {
		case n.GetUser() != nil:
			cidrs = append(cidrs, cmp.Or(n.GetUser().GetCidr(), spec.DefaultPodCIDR))
		case n.GetPod() != nil && n.GetPod().GetBinding() != spec.BindingBridge:
			cidrs = append(cidrs, cmp.Or(n.GetPod().GetCidr(), spec.DefaultPodCIDR), cmp.Or(n.GetPod().GetIpv6Cidr(), spec.DefaultPodIPv6CIDR))
		}
	}
	for _, cidr := range cidrs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			hidden = append(hidden, p.Masked())
		}
	}
	return hidden
}

// addresses appends what the guest says of an interface: what is an address, is not there
// yet and not behind the NAT.
func addresses(known []string, g *nodev1.GuestInterface, hidden []netip.Prefix) []string {
	for _, text := range g.GetAddresses() {
		a, err := netip.ParseAddr(text)
		switch {
		case len(known) >= maxAddresses:
			return known
		case err != nil || a.Zone() != "" || slices.Contains(known, a.String()) || slices.ContainsFunc(hidden, func(p netip.Prefix) bool { return p.Contains(a) }):
			continue
		}
		known = append(known, a.String())
	}
	return known
}
