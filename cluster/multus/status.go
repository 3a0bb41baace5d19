package multus

import (
	"encoding/json"
	"net"
	"net/netip"
)

// Bounds of what is taken of an annotation: anybody who may write to the pod has written it.
const (
	maxStatus    = 64 << 10
	maxNetworks  = 32
	maxAddresses = 16 // a network
)

// Network is one that a pod has.
type Network struct {
	// Interface of the pod.
	Interface string
	// MAC in lower case with colons; empty if there is none, or none that is one.
	MAC string
	// Addresses that the network has given to the pod's interface.
	Addresses []netip.Addr
}

// Status reads Multus' answer. What is not to be understood is left out: it is all for show.
func Status(annotation string) []Network {
	if len(annotation) > maxStatus {
		return nil
	}
	var answer []struct {
		Interface string   `json:"interface"`
		IPs       []string `json:"ips"`
		MAC       string   `json:"mac"`
	}
	if json.Unmarshal([]byte(annotation), &answer) != nil {
		return nil
	}
	var networks []Network
	for _, a := range answer[:min(len(answer), maxNetworks)] {
		n := Network{Interface: a.Interface}
		if mac, err := net.ParseMAC(a.MAC); err == nil && len(mac) == 6 {
			n.MAC = mac.String()
		}
		for _, text := range a.IPs[:min(len(a.IPs), maxAddresses)] {
			if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
				n.Addresses = append(n.Addresses, ip)
			}
		}
		networks = append(networks, n)
	}
	return networks
}

// Find returns the network of a pod's interface; false: there is none.
func Find(networks []Network, name string) (Network, bool) {
	for _, n := range networks {
		if n.Interface == name {
			return n, true
		}
	}
	return Network{}, false
}
