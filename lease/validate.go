package lease

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vmlet/vmlet/lease/internal/domains"
)

// Bounds on a Config: a guest has little use for more, and answers stay within a packet.
const (
	maxServers = 16
	maxDomains = 32
	maxRoutes  = 64
	maxText    = 255

	minMTU4, minMTU6, maxMTU = 576, 1280, 65535

	firstPrivate, lastPrivate = 224, 254
)

// Validate returns all faults, each with its field.
func (c *Config) Validate() error {
	var all faults
	all.when(c.MAC == MAC{} || c.MAC[0]&1 != 0, "mac", "%s is no interface's", c.MAC)
	least := minMTU4
	if c.V6 != nil {
		least = minMTU6
	}
	all.when(c.MTU != 0 && (c.MTU < least || c.MTU > maxMTU), "mtu", "%d is not between %d and %d", c.MTU, least, maxMTU)
	all.name("hostname", c.Hostname)
	all.name("domainName", c.DomainName)
	all.when(len(c.SearchDomains) > maxDomains, "searchDomains", "%d, at most %d are allowed", len(c.SearchDomains), maxDomains)
	for i, name := range c.SearchDomains {
		all.when(name == "", fmt.Sprintf("searchDomains[%d]", i), "empty")
		all.name(fmt.Sprintf("searchDomains[%d]", i), name)
	}
	all.when(len(c.Nameservers) > maxServers, "nameservers", "%d, at most %d are allowed", len(c.Nameservers), maxServers)
	for i, a := range c.Nameservers {
		all.when(!a.IsValid() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast(), fmt.Sprintf("nameservers[%d]", i), "%s is no server's address", a)
	}
	if c.V4 != nil {
		all.v4(c.V4)
	}
	if c.V6 != nil {
		all.v6(c.V6)
	}
	return errors.Join(all...)
}

type faults []error

func (f *faults) when(wrong bool, field, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
}

func (f *faults) name(field, name string) {
	if name == "" {
		return
	}
	if err := domains.Check(name); err != nil {
		f.when(true, field, "%v", err)
	}
}

func (f *faults) v4(v *V4) {
	f.when(!v.Address.IsValid() || !host4(v.Address.Addr()), "v4.address", "%s is no host's IPv4 address", v.Address)
	f.when(!host4(v.Server), "v4.server", "%s is no host's IPv4 address", v.Server)
	f.when(v.Gateway.IsValid() && !host4(v.Gateway), "v4.gateway", "%s is no host's IPv4 address", v.Gateway)
	f.when(len(v.Routes) > maxRoutes, "v4.routes", "%d, at most %d are allowed", len(v.Routes), maxRoutes)
	for i, r := range v.Routes {
		f.when(!r.To.IsValid() || !r.To.Addr().Is4(), fmt.Sprintf("v4.routes[%d].to", i), "%s is no IPv4 network", r.To)
		f.when(r.Via.IsValid() && !host4(r.Via), fmt.Sprintf("v4.routes[%d].via", i), "%s is no host's IPv4 address", r.Via)
	}
	f.when(len(v.NTPServers) > maxServers, "v4.ntpServers", "%d, at most %d are allowed", len(v.NTPServers), maxServers)
	for i, a := range v.NTPServers {
		f.when(!host4(a), fmt.Sprintf("v4.ntpServers[%d]", i), "%s is no host's IPv4 address", a)
	}
	f.when(len(v.BootFile) > maxText, "v4.bootFile", "%d bytes, at most %d are allowed", len(v.BootFile), maxText)
	f.when(len(v.TFTPServer) > maxText, "v4.tftpServer", "%d bytes, at most %d are allowed", len(v.TFTPServer), maxText)
	seen := make(map[int]bool)
	for i, o := range v.Private {
		field := fmt.Sprintf("v4.private[%d]", i)
		f.when(o.Code < firstPrivate || o.Code > lastPrivate, field+".code", "%d is not between %d and %d", o.Code, firstPrivate, lastPrivate)
		f.when(seen[o.Code], field+".code", "%d is listed twice", o.Code)
		f.when(o.Value == "" || len(o.Value) > maxText, field+".value", "%d bytes, 1 to %d are allowed", len(o.Value), maxText)
		seen[o.Code] = true
	}
}

func (f *faults) v6(v *V6) {
	a := v.Address.Addr()
	f.when(!v.Address.IsValid() || !a.Is6() || a.Is4In6() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast(), "v6.address", "%s is no host's IPv6 address", v.Address)
	f.when(!v.Router.Is6() || !v.Router.IsLinkLocalUnicast() || v.Router.Zone() != "", "v6.router", "%s is no link-local address", v.Router)
	f.when(len(v.BootFileURL) > maxText, "v6.bootFileURL", "%d bytes, at most %d are allowed", len(v.BootFileURL), maxText)
}

func host4(a netip.Addr) bool {
	return a.Is4() && !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
