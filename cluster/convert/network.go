package convert

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// guestNetwork is the one that KubeVirt's guests are in: the gateway has its first address,
// the guest its second.
const guestNetwork = "10.0.2.0/24"

// networks are the guest's interfaces, each on the pod's network.
func networks(vmi *kubevirtv1.VirtualMachineInstance) (out []*specv1.NetworkInterface, faults field.ErrorList) {
	path := field.NewPath("spec", "domain", "devices", "interfaces")
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		pod := podNetwork(vmi, iface.Name)
		if pod == nil {
			faults = append(faults, field.NotSupported(path.Index(i).Child("name"), iface.Name, podNetworks(vmi)))
			continue
		}
		forwards, fault := forwards(vmi, iface, path.Index(i))
		if fault != nil {
			faults = append(faults, fault)
			continue
		}
		out = append(out, &specv1.NetworkInterface{
			Name:  DeviceName(iface.Name),
			Mac:   cmp.Or(strings.ReplaceAll(strings.ToLower(iface.MACAddress), "-", ":"), MAC(UUID(vmi), iface.Name)),
			Model: iface.Model,
			Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{
				Cidr:     cmp.Or(pod.VMNetworkCIDR, guestNetwork),
				Hostname: Hostname(vmi),
				Ports:    forwards,
			}},
		})
	}
	return out, faults
}

// podNetwork is the pod network of that name, or nil.
func podNetwork(vmi *kubevirtv1.VirtualMachineInstance, name string) *kubevirtv1.PodNetwork {
	for _, n := range vmi.Spec.Networks {
		if n.Name == name {
			return n.Pod
		}
	}
	return nil
}

// podNetworks are the names of the networks that interfaces can have.
func podNetworks(vmi *kubevirtv1.VirtualMachineInstance) (names []string) {
	for _, n := range vmi.Spec.Networks {
		if n.Pod != nil {
			names = append(names, n.Name)
		}
	}
	return names
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
