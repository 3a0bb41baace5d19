// Package lease says what a guest learns of its network: by DHCPv4, DHCPv6 and router
// advertisements, as plain data. The agent fills a Config in and sends it to the shim with
// the sockets that package lease/socket opens; package lease/server answers on them.
//
// The package opens nothing and knows nothing of VMs. Start with Config.
package lease

import (
	"net"
	"net/netip"
	"os"
	"time"
)

// Time is for how long a guest has its addresses: nobody else gets them, so that it is
// long.
const Time = 999 * 24 * time.Hour

// Config is what the guest learns on one interface.
type Config struct {
	// MAC of the guest's interface: nobody else is answered.
	MAC MAC `json:"mac"`
	// MTU of the network; 0: the guest gets none.
	MTU      int    `json:"mtu,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// DomainName of the guest; empty: the first of SearchDomains.
	DomainName string `json:"domainName,omitempty"`
	// SearchDomains come before those of the pod's resolv.conf: see Complete.
	SearchDomains []string `json:"searchDomains,omitempty"`
	// Nameservers of both families; none: those of the pod's resolv.conf.
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	// V4 and V6 are nil where the guest has no address of that family.
	V4 *V4 `json:"v4,omitempty"`
	V6 *V6 `json:"v6,omitempty"`
}

// V4 is what DHCPv4 tells.
type V4 struct {
	// Address of the guest, with the length of its network.
	Address netip.Prefix `json:"address"`
	// Server is the address that answers come from and the server's identity. In
	// masquerade it is the gateway; a bridge has one of 169.254.75.0/24.
	Server netip.Addr `json:"server"`
	// Gateway of the default route; zero: there is none. It may be outside of the
	// guest's network: then the shim tells the guest that it is on the link.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Routes beside the default route.
	Routes     []Route      `json:"routes,omitempty"`
	NTPServers []netip.Addr `json:"ntpServers,omitempty"`
	// BootFile and TFTPServer are in options 67 and 66, and in the fields of BOOTP.
	BootFile   string `json:"bootFile,omitempty"`
	TFTPServer string `json:"tftpServer,omitempty"`
	// Private options.
	Private []Option `json:"private,omitempty"`
}

// Route is a static route of the guest.
type Route struct {
	To netip.Prefix `json:"to"`
	// Via is zero for what is on the link.
	Via netip.Addr `json:"via,omitzero"`
}

// Option is a DHCPv4 option of the user's own: 224 to 254.
type Option struct {
	Code  int    `json:"code"`
	Value string `json:"value"`
}

// V6 is what DHCPv6 and router advertisements tell.
type V6 struct {
	// Address of the guest, with the length of the prefix that is on its link.
	Address netip.Prefix `json:"address"`
	// Router is a link-local address, which answers and advertisements come from.
	Router netip.Addr `json:"router"`
	// RouterMAC is sent with advertisements; zero: the guest asks for it.
	RouterMAC MAC `json:"routerMAC,omitzero"`
	// DefaultRoute: the guest's leads to Router.
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// BootFileURL is sent to clients that ask (RFC 5970).
	BootFileURL string `json:"bootFileURL,omitempty"`
}

// MAC is an Ethernet address.
type MAC [6]byte

// ParseMAC reads one in the usual form, 02:00:00:00:00:01.
func ParseMAC(text string) (m MAC, err error) {
	err = m.UnmarshalText([]byte(text))
	return m, err
}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText and UnmarshalText are for JSON; the zero MAC is the empty text.
func (m MAC) MarshalText() ([]byte, error) {
	if m == (MAC{}) {
		return nil, nil
	}
	return []byte(m.String()), nil
}

func (m *MAC) UnmarshalText(text []byte) error {
	*m = MAC{}
	if len(text) == 0 {
		return nil
	}
	parsed, err := net.ParseMAC(string(text))
	if err != nil {
		return err
	}
	if len(parsed) != len(m) {
		return &net.AddrError{Err: "no Ethernet address", Addr: string(text)}
	}
	copy(m[:], parsed)
	return nil
}

// SocketCount is the number of descriptors of one interface's Sockets.
const SocketCount = 3

// Sockets are those of one interface, as package lease/socket opens them.
type Sockets struct {
	// IPv4 and IPv6 are packet sockets, which take in what the guest asks and send whole
	// packets: the guest has no address at first, and a pod that has given its own to the
	// guest can't send to it by UDP.
	IPv4, IPv6 *os.File
	// Port is a UDP socket that takes nothing in. While it is open the kernel doesn't
	// answer the guest that nobody listens on DHCP's port.
	Port *os.File
}

// Files are the sockets in the order in which SocketsOf takes them.
func (s Sockets) Files() []*os.File { return []*os.File{s.IPv4, s.IPv6, s.Port} }

// SocketsOf takes SocketCount files.
func SocketsOf(files []*os.File) Sockets {
	return Sockets{IPv4: files[0], IPv6: files[1], Port: files[2]}
}

// Close closes those that are open.
func (s Sockets) Close() {
	for _, f := range s.Files() {
		if f != nil {
			f.Close()
		}
	}
}
