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

// interfaces wants one network for each interface and the other way round.
func (r Request) interfaces(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	nics, networks := at.Child("domain", "devices", "interfaces"), at.Child("networks")
	seen, pods := make(map[string]bool), 0
	for i, n := range s.Networks {
		network := networks.Index(i)
		if seen[n.Name] {
			faults = append(faults, field.Duplicate(network.Child("name"), short(n.Name)))
		}
		seen[n.Name] = true
		faults = append(faults, multusNetwork(n.Multus, network.Child("multus", "networkName"))...)
		if !slices.ContainsFunc(s.Domain.Devices.Interfaces, func(nic kubevirtv1.Interface) bool { return nic.Name == n.Name }) {
			faults = append(faults, field.Invalid(network.Child("name"), short(n.Name), "no interface has this name: add it to domain.devices.interfaces or remove the network"))
		}
		kind := network.Child("pod")
		switch {
		case n.Multus != nil && n.Multus.Default:
			kind = network.Child("multus", "default")
		case n.Pod == nil:
			continue
		}
		if pods++; pods > 1 {
			faults = append(faults, field.Forbidden(kind, "the pod has one default network: remove all others of this kind"))
		}
		if n.Pod == nil {
			continue
		}
		faults = append(faults, guestNetwork(n.Pod.VMNetworkCIDR, "IPv4", "10.0.2.0/24", spec.MaxPodPrefix, network.Child("pod", "vmNetworkCIDR"))...)
		faults = append(faults, guestNetwork(n.Pod.VMIPv6NetworkCIDR, "IPv6", "fd10:0:2::/120", spec.MaxPodIPv6Prefix, network.Child("pod", "vmIPv6NetworkCIDR"))...)
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
		faults = append(faults, r.binding(nic, s.Networks, nics.Index(i))...)
	}
	return faults
}

// guestNetwork wants what a specification takes: room for a gateway and a guest.
func guestNetwork(cidr, family, example string, most int, at *field.Path) field.ErrorList {
	if cidr == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || prefix.Addr().Is4() != (family == "IPv4") || prefix.Bits() < spec.MinUserPrefix || prefix.Bits() > most {
		return field.ErrorList{field.Invalid(at, short(cidr), fmt.Sprintf("want an %s network such as %s, with a prefix of %d to %d bits", family, example, spec.MinUserPrefix, most))}
	}
	return nil
}

func (r Request) nic(nic kubevirtv1.Interface, at *field.Path) (faults field.ErrorList) {
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

// ports may be listed twice. A range is one entry, whatever its length.
func ports(nic kubevirtv1.Interface, at *field.Path) (faults field.ErrorList) {
	protocols := []string{"TCP", "UDP"}
	names := make(map[string]bool)
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
	}
	if total := len(nic.Ports) + len(nic.PortRanges); total > spec.MaxPodPorts {
		faults = append(faults, field.TooMany(at.Child("ports"), total, spec.MaxPodPorts))
	}
	return faults
}
