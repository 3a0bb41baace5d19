package server_test

import (
	"testing"

	"github.com/vmlet/vmlet/test/podlink"
)

// TestDhclient: ISC's clients of both families get what they ask for.
func TestDhclient(t *testing.T) {
	for family, c := range map[string]struct {
		reason string
		want   []string
	}{
		"-4": {"BOUND", []string{
			"new_ip_address=10.0.2.2", "new_subnet_mask=255.255.255.0", "new_routers=10.0.2.1", "new_domain_name_servers=10.96.0.10 192.0.2.53",
			"new_domain_name=sub.shop.svc.cluster.local", "new_host_name=web-1", "new_interface_mtu=1450", "new_ntp_servers=192.0.2.123",
			"new_domain_search=sub.shop.svc.cluster.local. shop.svc.cluster.local. svc.cluster.local. example.org.",
			"new_dhcp_lease_time=86313600", "new_dhcp_server_identifier=10.0.2.1", "new_filename=pxelinux.0", "new_server_name=192.0.2.69",
		}},
		"-6": {"BOUND6", []string{
			"new_ip6_address=fd10:0:2::2", "new_dhcp6_name_servers=fd00::a", "new_max_life=86313600", "new_preferred_life=86313600",
			"new_dhcp6_domain_search=sub.shop.svc.cluster.local. shop.svc.cluster.local. svc.cluster.local. example.org.",
		}},
	} {
		t.Run(family, func(t *testing.T) {
			program := podlink.Installed(t, "dhclient")
			l := newLink(t)
			l.Up()
			l.serve(masquerade())
			script, notes := l.Script()
			dir := t.TempDir()
			// The kernel gives the interface its address a moment after it is up, and a client of IPv6 ends without.
			l.Await("a link-local address", func() bool { return l.Address("fe80:") != "" })
			l.Start(program, family, "-d", "-sf", script, "-cf", "/dev/null", "-lf", dir+"/leases", "-pf", dir+"/pid", "eth0")
			l.AwaitNote(notes, "reason="+c.reason)
			l.Expect(notes, c.want)
		})
	}
}

// TestDhcpcd: a client of both families, which asks for an IPv6 address where the router
// tells it to, gets addresses with which it reaches what is beyond the router.
func TestDhcpcd(t *testing.T) {
	program := podlink.Installed(t, "dhcpcd")
	l := newLink(t)
	for _, address := range []string{"fe80::1/64", "10.0.2.1/24", "fd10:0:2::1/120", "192.0.2.1/32", "2001:db8::1/128"} {
		l.AddAddress(address)
	}
	l.Up()
	l.serve(masquerade())
	script, notes := l.Script()
	l.Start(program, "-B", "-d", "-f", "/dev/null", "-c", script, "-o", "domain_search", "--noarp", "eth0")
	l.AwaitNote(notes, "reason=BOUND")
	l.AwaitNote(notes, "reason=BOUND6")
	l.Expect(notes, []string{
		"new_ip_address=10.0.2.2", "new_domain_search=sub.shop.svc.cluster.local shop.svc.cluster.local svc.cluster.local example.org",
		"new_dhcp6_ia_na1_ia_addr1=fd10:0:2::2", "new_dhcp6_name_servers=fd00::a", "nd1_from=fe80::1",
		"nd1_flags=MO", "nd1_lifetime=9000", "nd1_mtu=1450", "nd1_source_address=020000000000", "nd1_rdnss1_servers=fd00::a",
		"nd1_prefix_information1_prefix=fd10:0:2::", "nd1_prefix_information1_length=120", "nd1_prefix_information1_flags=L",
		"nd1_dnssl1_search=sub.shop.svc.cluster.local shop.svc.cluster.local svc.cluster.local example.org",
	})
	l.Run(podlink.Busybox(t), "ping", "-c", "1", "192.0.2.1")
	l.Run(podlink.Busybox(t), "ping", "-c", "1", "2001:db8::1")
}
