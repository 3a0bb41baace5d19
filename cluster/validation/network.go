package validation

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/spec"
)

// gatewayMAC is that of the gateway that guests see: none of them may have it.
const gatewayMAC = "02:00:00:00:00:00"

// interfaces wants one network for each interface and the other way round, the pod's
// alone for now.
func (r Request) interfaces(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	nics, networks := at.Child("domain", "devices", "interfaces"), at.Child("networks")
	seen, pods := make(map[string]bool), 0
	for i, n := range s.Networks {
		network := networks.Index(i)
		if seen[n.Name] {
			faults = append(faults, field.Duplicate(network.Child("name"), short(n.Name)))
		}
		seen[n.Name] = true
		if !slices.ContainsFunc(s.Domain.Devices.Interfaces, func(nic kubevirtv1.Interface) bool { return nic.Name == n.Name }) {
			faults = append(faults, field.Invalid(network.Child("name"), short(n.Name), "no interface has this name: add it to domain.devices.interfaces or remove the network"))
		}
		if n.Pod == nil {
			continue
		}
		if pods++; pods > 1 {
			faults = append(faults, field.Forbidden(network.Child("pod"), "the pod has one network: remove all others of this kind"))
		}
		faults = append(faults, guestNetwork(n.Pod.VMNetworkCIDR, network.Child("pod", "vmNetworkCIDR"))...)
	}
	used := make(map[string]bool)
	for i, nic := range s.Domain.Devices.Interfaces {
		if used[nic.Name] {
			faults = append(faults, field.Duplicate(nics.Index(i).Child("name"), short(nic.Name)))
		} else if !seen[nic.Name] {
			faults = append(faults, field.Invalid(nics.Index(i).Child("name"), short(nic.Name), "networks has no network of this name: add it or remove the interface"))
		}
		used[nic.Name] = true
		faults = append(faults, r.nic(nic, nics.Index(i))...)
	}
	return faults
}

// guestNetwork wants what a specification takes: room for a gateway, a guest and a name server.
func guestNetwork(cidr string, at *field.Path) field.ErrorList {
	if cidr == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() < spec.MinUserPrefix || prefix.Bits() > spec.MaxUserPrefix {
		return field.ErrorList{field.Invalid(at, short(cidr), fmt.Sprintf("want an IPv4 network such as 10.0.2.0/24, with a prefix of %d to %d bits", spec.MinUserPrefix, spec.MaxUserPrefix))}
	}
	return nil
}

func (r Request) nic(nic kubevirtv1.Interface, at *field.Path) (faults field.ErrorList) {
	if nic.Bridge != nil && !r.Configuration.PermitBridge {
		faults = append(faults, field.Forbidden(at.Child("bridge"), "the KubeVirt object doesn't permit bridge on the pod network (permitBridgeInterfaceOnPodNetwork): use masquerade"))
	}
	models := []string{"virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"}
	faults = append(faults, oneOf(nic.Model, models, at.Child("model"))...)
	faults = append(faults, macAddress(nic.MACAddress, at.Child("macAddress"))...)
	return append(faults, ports(nic, at)...)
}

func macAddress(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	mac, err := net.ParseMAC(text)
	switch {
	case err != nil || len(mac) != 6:
		return field.ErrorList{field.Invalid(at, short(text), "want six bytes such as 52:54:00:12:34:56")}
	case mac[0]&1 != 0:
		return field.ErrorList{field.Invalid(at, text, "it is a multicast address: the first byte of an interface's is even")}
	case mac.String() == gatewayMAC || mac.String() == "00:00:00:00:00:00":
		return field.ErrorList{field.Invalid(at, text, "it is not an address for a guest: choose another or leave it out")}
	}
	return nil
}

// ports wants no more than are forwarded. One that is listed twice is forwarded once.
func ports(nic kubevirtv1.Interface, at *field.Path) (faults field.ErrorList) {
	protocols := []string{"TCP", "UDP"}
	total, names := len(nic.Ports), make(map[string]bool)
	for i, p := range nic.Ports {
		port := at.Child("ports").Index(i)
		faults = append(faults, oneOf(p.Protocol, protocols, port.Child("protocol"))...)
		if p.Name == "" {
			continue
		}
		if names[p.Name] {
			faults = append(faults, field.Duplicate(port.Child("name"), short(p.Name)))
		}
		names[p.Name] = true
		for _, fault := range validation.IsValidPortName(p.Name) {
			faults = append(faults, field.Invalid(port.Child("name"), short(p.Name), fault))
		}
	}
	for i, r := range nic.PortRanges {
		faults = append(faults, oneOf(r.Protocol, protocols, at.Child("portRanges").Index(i).Child("protocol"))...)
		total += int(r.End) - int(r.Start) + 1
	}
	if total > spec.MaxPorts {
		faults = append(faults, field.TooMany(at.Child("ports"), total, spec.MaxPorts))
	}
	return faults
}
