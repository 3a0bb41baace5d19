package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sysctls are files below /proc/sys/net, which are those of the calling thread's network
// namespace, and what is to be in them.
type sysctls []struct{ path, value string }

// apply writes what is not so yet: /proc/sys may be read-only.
func (s sysctls) apply() error {
	for _, c := range s {
		path := filepath.Join("/proc/sys/net", c.path)
		now, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(c.path, "ipv4") {
			continue // a kernel without IPv6, or without br_netfilter
		}
		if err == nil && string(bytes.TrimSpace(now)) != c.value {
			err = os.WriteFile(path, []byte(c.value), 0)
		}
		if err != nil {
			return fmt.Errorf("setting %s to %s: %w", c.path, c.value, err)
		}
	}
	return nil
}

// unfiltered keeps what is only bridged from the packet filter (br_netfilter, which nodes of
// Kubernetes load): a guest that sends to its own pod's address would have its packets
// bridged back to the port that they came from, and dropped. The kernel has these for each
// namespace since 5.3, and before in the node's alone.
func unfiltered() sysctls {
	return sysctls{{"bridge/bridge-nf-call-iptables", "0"}, {"bridge/bridge-nf-call-ip6tables", "0"}, {"bridge/bridge-nf-call-arptables", "0"}}
}

// forwarding has the pod forward between its interface and the guest's bridge. The guest is
// to tell the pod no routes, and what comes from the pod's own loopback address is to reach
// it (route_localnet; podnet/rules keeps the guest from that address).
func forwarding(nic, bridge string, ipv6 bool) sysctls {
	s := sysctls{
		{"ipv4/ip_forward", "1"},
		{"ipv4/conf/" + bridge + "/forwarding", "1"},
		{"ipv4/conf/" + nic + "/forwarding", "1"},
		{"ipv4/conf/" + bridge + "/route_localnet", "1"},
		{"ipv4/conf/" + bridge + "/accept_redirects", "0"},
		{"ipv4/conf/" + bridge + "/send_redirects", "0"},
	}
	if !ipv6 {
		return append(s, sysctls{{"ipv6/conf/" + bridge + "/disable_ipv6", "1"}}...)
	}
	return append(s, sysctls{
		{"ipv6/conf/" + bridge + "/disable_ipv6", "0"},
		// Its link-local address is a router's, and needed at once.
		{"ipv6/conf/" + bridge + "/accept_dad", "0"},
		{"ipv6/conf/" + bridge + "/accept_ra", "0"},
		{"ipv6/conf/" + bridge + "/accept_redirects", "0"},
		// Else a pod that has its route from a router would lose it: with forwarding, 1 is 0.
		{"ipv6/conf/" + nic + "/accept_ra", "2"},
		{"ipv6/conf/all/forwarding", "1"},
	}...)
}

// switching has the pod keep out of what is between the guest and the network: the guest's
// addresses are the pod's, and the pod is not to answer for them.
func switching(nic, bridge string) sysctls {
	return sysctls{
		{"ipv4/conf/" + bridge + "/arp_ignore", "1"},
		{"ipv6/conf/" + bridge + "/disable_ipv6", "1"},
		{"ipv6/conf/" + nic + "/disable_ipv6", "1"},
	}
}
