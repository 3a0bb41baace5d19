package convert

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// guestNetwork is the one that KubeVirt's guests are in: the gateway has its first address,
// the guest its second.
const guestNetwork = "10.0.2.0/24"

// networks are the guest's interfaces, each on the pod's network.
func networks(in Input) (out []*specv1.NetworkInterface, faults field.ErrorList) {
	vmi, path := in.Instance, field.NewPath("spec", "domain", "devices", "interfaces")
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		at := slices.IndexFunc(vmi.Spec.Networks, func(n kubevirtv1.Network) bool { return n.Name == iface.Name })
		if at < 0 {
			faults = append(faults, field.NotFound(path.Index(i).Child("name"), iface.Name))
			continue
		}
		on := &vmi.Spec.Networks[at]
		if on.Pod == nil && on.Multus == nil {
			faults = append(faults, field.Forbidden(field.NewPath("spec", "networks").Index(at), "interfaces can be on the pod's networks alone: use pod or multus"))
			continue
		}
		network, more := podNetwork(in, iface, on, path.Index(i))
		faults = append(faults, more...)
		out = append(out, &specv1.NetworkInterface{
			Name:    DeviceName(iface.Name),
			Mac:     InterfaceMAC(vmi, on),
			Backend: &specv1.NetworkInterface_Pod{Pod: network},
		})
	}
	return out, faults
}

// podNetwork connects the guest to one of the pod's networks, with QEMU's user-mode network in
// the place of a masquerade for nodes that can't.
func podNetwork(in Input, iface *kubevirtv1.Interface, on *kubevirtv1.Network, path *field.Path) (*specv1.PodNetwork, field.ErrorList) {
	n := &specv1.PodNetwork{
		Binding: spec.BindingBridge, Dhcp: dhcpOptions(in, iface),
		LinkDown: iface.State == kubevirtv1.InterfaceDown, Queues: queues(in.Instance, iface),
	}
	if on.Multus != nil {
		n.Interface = multus.Interface(on)
		return n, nil
	}
	if iface.Bridge != nil {
		return n, nil
	}
	n.Binding = spec.BindingMasquerade
	n.Cidr, n.Ipv6Cidr = network(on.Pod.VMNetworkCIDR), network(on.Pod.VMIPv6NetworkCIDR)
	if n.Ports = portRanges(iface); len(n.Ports) > spec.MaxPodPorts {
		return nil, field.ErrorList{field.TooMany(path.Child("ports"), len(n.Ports), spec.MaxPodPorts)}
	}
	if !n.LinkDown {
		n.Fallback = userNetwork(in, iface, on.Pod)
	}
	return n, nil
}

// userNetwork is nil where it can't have all the ports: the guest is then refused where its
// pod's network can't be made.
func userNetwork(in Input, iface *kubevirtv1.Interface, pod *kubevirtv1.PodNetwork) *specv1.UserNetwork {
	forwards, all := forwards(in.Instance, iface)
	if !all || !vmm.DefaultsOf(Planner(in.Instance, in.Configuration), Architecture(in)).UserNetwork {
		return nil
	}
	cidr := network(cmp.Or(pod.VMNetworkCIDR, guestNetwork))
	if p, err := netip.ParsePrefix(cidr); err != nil || p.Bits() > spec.MaxUserPrefix {
		return nil
	}
	dhcp := cmp.Or(iface.DHCPOptions, new(kubevirtv1.DHCPOptions))
	return &specv1.UserNetwork{
		Cidr:          cidr,
		Hostname:      Hostname(in.Instance),
		SearchDomains: searchDomains(in),
		BootFile:      dhcp.BootFileName,
		TftpServer:    dhcp.TFTPServerName,
		Ports:         forwards,
	}
}

// dhcpOptions are what the pod's resolv.conf doesn't say.
func dhcpOptions(in Input, iface *kubevirtv1.Interface) *specv1.DHCPOptions {
	given := cmp.Or(iface.DHCPOptions, new(kubevirtv1.DHCPOptions))
	d := &specv1.DHCPOptions{
		Hostname: Hostname(in.Instance), NtpServers: given.NTPServers, BootFile: given.BootFileName, TftpServer: given.TFTPServerName,
	}
	if own := subdomain(in); own != "" {
		d.SearchDomains = []string{own}
	}
	for _, o := range given.PrivateOptions {
		d.Private = append(d.Private, &specv1.PrivateDHCPOption{Option: uint32(o.Option), Value: o.Value})
	}
	return d
}

// portRanges are the listed ports, each entry once; none: all lead to the guest.
func portRanges(iface *kubevirtv1.Interface) (ranges []*specv1.PortRange) {
	seen := make(map[string]bool)
	add := func(protocol string, first, last int32) {
		protocol = cmp.Or(strings.ToLower(protocol), spec.ProtocolTCP)
		if key := fmt.Sprint(protocol, first, "-", last); !seen[key] {
			seen[key] = true
			ranges = append(ranges, &specv1.PortRange{Protocol: protocol, First: uint32(first), Last: uint32(last)})
		}
	}
	for _, p := range iface.Ports {
		add(p.Protocol, p.Port, p.Port)
	}
	for _, r := range iface.PortRanges {
		add(r.Protocol, r.Start, r.End)
	}
	return ranges
}

// network is a CIDR without the bits of a host, which users may have written.
func network(cidr string) string {
	if prefix, err := netip.ParsePrefix(cidr); err == nil {
		return prefix.Masked().String()
	}
	return cidr // a fault of the specification
}

// defaultClusterDomain is that of most clusters.
const defaultClusterDomain = "cluster.local"

// inCluster: the guest looks names up with the cluster's DNS.
func inCluster(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Spec.DNSPolicy != corev1.DNSNone && vmi.Spec.DNSPolicy != corev1.DNSDefault
}

// subdomain is the domain of the guest's own name; empty: it has none.
func subdomain(in Input) string {
	if in.Instance.Spec.Subdomain == "" || !inCluster(in.Instance) {
		return ""
	}
	return in.Instance.Spec.Subdomain + "." + in.Instance.Namespace + ".svc." + cmp.Or(in.ClusterDomain, defaultClusterDomain)
}

// searchDomains are those of a pod with the instance's DNS policy, before them the domain of
// the guest's own subdomain, as KubeVirt's guests have it: those that are too many or too long
// are left out.
func searchDomains(in Input) (domains []string) {
	vmi, all := in.Instance, []string(nil)
	if inCluster(vmi) {
		cluster := cmp.Or(in.ClusterDomain, defaultClusterDomain)
		if own := subdomain(in); own != "" {
			all = append(all, own)
		}
		all = append(all, vmi.Namespace+".svc."+cluster, "svc."+cluster, cluster)
	}
	if vmi.Spec.DNSConfig != nil {
		for _, domain := range vmi.Spec.DNSConfig.Searches {
			all = append(all, strings.TrimSuffix(domain, "."))
		}
	}
	size := 0
	for _, domain := range all {
		if domain == "" || len(domain) > validation.DNS1123SubdomainMaxLength || slices.Contains(domains, domain) {
			continue
		}
		if size += len(domain) + 1; len(domains) == spec.MaxSearchDomains || size > spec.MaxSearchText {
			break
		}
		domains = append(domains, domain)
	}
	return domains
}

// Hostname is the guest's: the instance's name up to its first dot, unless it says another.
func Hostname(vmi *kubevirtv1.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	name, _, _ := strings.Cut(vmi.Name, ".")
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// MAC is the address of an interface that is given none: made from the machine's UUID and
// the interface's name, so that it stays for the VM's life. It is locally administered and
// unicast.
func MAC(uuid, name string) string {
	sum := sha256.Sum256([]byte(uuid + "/" + name))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac.String()
}

// forwards are the ports of the pod that QEMU's user-mode network leads to the guest. It can't
// forward all ports where an interface lists none: those that the probes need are forwarded
// then. false: there are too many.
func forwards(vmi *kubevirtv1.VirtualMachineInstance, iface *kubevirtv1.Interface) ([]*specv1.PortForward, bool) {
	f := new(forwarder)
	for _, p := range iface.Ports {
		f.add(p.Protocol, p.Port, p.Port)
	}
	for _, r := range iface.PortRanges {
		f.add(r.Protocol, r.Start, r.End)
	}
	if len(iface.Ports) == 0 && len(iface.PortRanges) == 0 {
		for _, port := range probedPorts(vmi) {
			f.add("", port, port)
		}
	}
	return f.ports, !f.over
}

// forwarder collects ports, each once and no more than a specification may have.
type forwarder struct {
	ports []*specv1.PortForward
	seen  map[string]bool
	over  bool
}

func (f *forwarder) add(protocol string, from, to int32) {
	protocol = cmp.Or(strings.ToLower(protocol), spec.ProtocolTCP)
	for port := from; port <= to && !f.over; port++ {
		key := fmt.Sprint(protocol, port)
		if f.seen[key] {
			continue
		}
		if f.over = len(f.ports) == spec.MaxPorts; f.over {
			return
		}
		if f.seen == nil {
			f.seen = make(map[string]bool)
		}
		f.seen[key] = true
		f.ports = append(f.ports, &specv1.PortForward{
			Protocol: protocol, HostAddress: "0.0.0.0", HostPort: uint32(port), GuestPort: uint32(port),
		})
	}
}

// probedPorts are the ports by number that the kubelet connects to.
func probedPorts(vmi *kubevirtv1.VirtualMachineInstance) (ports []int32) {
	for _, p := range []*kubevirtv1.Probe{vmi.Spec.ReadinessProbe, vmi.Spec.LivenessProbe} {
		if p == nil {
			continue
		}
		if port := probedPort(p.TCPSocket, p.HTTPGet); port.Type == intstr.Int && port.IntVal > 0 {
			ports = append(ports, port.IntVal)
		}
	}
	return ports
}

func probedPort(tcp *corev1.TCPSocketAction, http *corev1.HTTPGetAction) intstr.IntOrString {
	switch {
	case tcp != nil:
		return tcp.Port
	case http != nil:
		return http.Port
	}
	return intstr.IntOrString{}
}
