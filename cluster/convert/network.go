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
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
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
		pod := vmi.Spec.Networks[at].Pod
		if pod == nil {
			faults = append(faults, field.Forbidden(field.NewPath("spec", "networks").Index(at), "interfaces can be on the pod's network alone: use pod"))
			continue
		}
		forwards, fault := forwards(vmi, iface, path.Index(i))
		if fault != nil {
			faults = append(faults, fault)
			continue
		}
		dhcp := cmp.Or(iface.DHCPOptions, new(kubevirtv1.DHCPOptions))
		out = append(out, &specv1.NetworkInterface{
			Name:  DeviceName(iface.Name),
			Mac:   cmp.Or(strings.ReplaceAll(strings.ToLower(iface.MACAddress), "-", ":"), MAC(UUID(vmi), iface.Name)),
			Model: iface.Model,
			Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{
				Cidr:          network(cmp.Or(pod.VMNetworkCIDR, guestNetwork)),
				Hostname:      Hostname(vmi),
				SearchDomains: searchDomains(in),
				BootFile:      dhcp.BootFileName,
				TftpServer:    dhcp.TFTPServerName,
				Ports:         forwards,
			}},
		})
	}
	return out, faults
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

// searchDomains are those of a pod with the instance's DNS policy, before them the domain of
// the guest's own subdomain, as KubeVirt's guests have it: those that are too many or too long
// are left out.
func searchDomains(in Input) (domains []string) {
	vmi, all := in.Instance, []string(nil)
	if policy := vmi.Spec.DNSPolicy; policy != corev1.DNSNone && policy != corev1.DNSDefault {
		cluster := cmp.Or(in.ClusterDomain, defaultClusterDomain)
		namespace := vmi.Namespace + ".svc." + cluster
		if vmi.Spec.Subdomain != "" {
			all = append(all, vmi.Spec.Subdomain+"."+namespace)
		}
		all = append(all, namespace, "svc."+cluster, cluster)
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

// forwards are the ports of the pod that lead to the guest. The user-mode network can't
// forward all ports as KubeVirt does where an interface lists none: those that the probes
// need are forwarded then.
func forwards(vmi *kubevirtv1.VirtualMachineInstance, iface *kubevirtv1.Interface, path *field.Path) ([]*specv1.PortForward, *field.Error) {
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
	if f.over {
		return nil, field.TooMany(path.Child("ports"), spec.MaxPorts+1, spec.MaxPorts)
	}
	return f.ports, nil
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
