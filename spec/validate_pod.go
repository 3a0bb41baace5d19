package spec

import (
	"fmt"
	"net/netip"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// podNetworks are those of a VM's pod. That a VM is in none is for its place to say.
func (v *validator) podNetworks(networks []*specv1.NetworkInterface) {
	interfaces, masqueraded, queues := make(map[string]int), -1, uint64(0)
	for i, n := range networks {
		p := n.GetPod()
		if p == nil {
			continue
		}
		field := fmt.Sprintf("networks[%d].pod", i)
		v.podNetwork(field, p)
		if queues += uint64(max(p.GetQueues(), 1)); queues > MaxPodQueues && p.GetQueues() <= MaxQueues {
			v.add(field+".queues", "%d: with it the interfaces have %d, and at most %d together", p.GetQueues(), queues, MaxPodQueues)
		}
		name := p.GetInterface()
		set(&name, DefaultPodInterface)
		if earlier, taken := interfaces[name]; taken {
			v.add(field+".interface", "%.40q is that of %s too", name, contract.FieldName(fmt.Sprintf("networks[%d]", earlier)))
		}
		interfaces[name] = i
		if p.GetBinding() == BindingBridge {
			continue
		}
		if masqueraded >= 0 {
			v.add(field+".binding", "%s is %s: one network of a pod can be", contract.FieldName(fmt.Sprintf("networks[%d]", masqueraded)), BindingMasquerade)
		}
		masqueraded = i
	}
}

func (v *validator) podNetwork(field string, p *specv1.PodNetwork) {
	v.oneOf(field+".binding", p.GetBinding(), bindings())
	v.device(field+".interface", p.GetInterface())
	if q := p.GetQueues(); q > MaxQueues {
		v.add(field+".queues", "%d: at most %d", q, MaxQueues)
	}
	v.dhcp(field+".dhcp", p.GetDhcp())
	v.userNetwork(field+".fallback", p.GetFallback())
	if p.GetBinding() == BindingBridge {
		v.onlyMasquerade(field, p)
		return
	}
	v.podCIDR(field+".cidr", p.GetCidr(), "IPv4", "10.0.2.0/24", MaxPodPrefix)
	v.podCIDR(field+".ipv6Cidr", p.GetIpv6Cidr(), "IPv6", "fd10:0:2::/120", MaxPodIPv6Prefix)
	if len(p.GetPorts()) > MaxPodPorts {
		v.add(field+".ports", "%d ranges of ports: at most %d", len(p.GetPorts()), MaxPodPorts)
		return
	}
	for i, r := range p.GetPorts() {
		at := fmt.Sprintf("%s.ports[%d]", field, i)
		v.oneOf(at+".protocol", r.GetProtocol(), protocols())
		v.port(at+".first", r.GetFirst())
		if last := r.GetLast(); last != 0 && (last < r.GetFirst() || last > 65535) {
			v.add(at+".last", "%d: want %d to 65535", last, r.GetFirst())
		}
	}
	if name := p.GetInterface(); p.GetFallback() != nil && name != "" && name != DefaultPodInterface {
		v.add(field+".fallback", "the VMM's own network is that of %s, and this of %.40s: leave it out", DefaultPodInterface, name)
	}
}

// onlyMasquerade refuses what a bridge has no use for.
func (v *validator) onlyMasquerade(field string, p *specv1.PodNetwork) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"cidr", p.GetCidr() != ""}, {"ipv6Cidr", p.GetIpv6Cidr() != ""}, {"ports", len(p.GetPorts()) > 0}, {"fallback", p.GetFallback() != nil}} {
		if f.set {
			v.add(field+"."+f.name, "a guest that is bridged has the pod's own addresses: leave it out, or use %s", BindingMasquerade)
		}
	}
}

func (v *validator) podCIDR(field, text, family, example string, most int) {
	if text == "" {
		return
	}
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil || network.Addr().Is4() != (family == "IPv4") || network.Addr().Is4In6():
		v.add(field, "%.80q is not an %s network in CIDR notation such as %s", text, family, example)
	case network.Bits() < MinUserPrefix || network.Bits() > most:
		v.add(field, "%s: want a prefix of %d to %d bits: there are a gateway and a guest", text, MinUserPrefix, most)
	case network.Masked() != network:
		v.add(field, "%s is an address in a network: want the network, %s", text, network.Masked())
	case network.Addr().IsLoopback() || network.Addr().IsMulticast() || network.Addr().IsUnspecified() || network.Addr().IsLinkLocalUnicast():
		v.add(field, "%s is no network for a guest: want one such as %s", text, example)
	}
}

func (v *validator) dhcp(field string, d *specv1.DHCPOptions) {
	v.guestNames(field, d.GetHostname(), d.GetSearchDomains())
	v.bootServer(field, d.GetBootFile(), d.GetTftpServer())
	if n := len(d.GetNtpServers()); n > MaxNTPServers {
		v.add(field+".ntpServers", "%d servers: at most %d", n, MaxNTPServers)
	}
	for i, server := range d.GetNtpServers() {
		if ip, err := netip.ParseAddr(server); err != nil || !ip.Is4() {
			v.add(fmt.Sprintf("%s.ntpServers[%d]", field, i), "%.80q is not an IPv4 address", server)
		}
	}
	if n := len(d.GetPrivate()); n > MaxPrivate {
		v.add(field+".private", "%d options: at most %d", n, MaxPrivate)
	}
	seen := make(map[uint32]bool)
	for i, o := range d.GetPrivate() {
		at := fmt.Sprintf("%s.private[%d]", field, i)
		switch {
		case o.GetOption() < minPrivateOption || o.GetOption() > maxPrivateOption:
			v.add(at+".option", "%d: want %d to %d", o.GetOption(), minPrivateOption, maxPrivateOption)
		case seen[o.GetOption()]:
			v.add(at+".option", "%d is listed twice", o.GetOption())
		}
		seen[o.GetOption()] = true
		if n := len(o.GetValue()); n == 0 || n > MaxPrivateValue {
			v.add(at+".value", "%d bytes: want 1 to %d", n, MaxPrivateValue)
		}
	}
}
