package server_test

import (
	"net/netip"
	"testing"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/test/podlink"
)

// masquerade is what a guest behind its pod's address is told, with all options.
func masquerade() *lease.Config {
	return &lease.Config{
		MAC: podlink.GuestMAC, MTU: 1450, Hostname: "web-1",
		SearchDomains: []string{"sub.shop.svc.cluster.local", "shop.svc.cluster.local", "svc.cluster.local", "example.org"},
		Nameservers:   []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a"), netip.MustParseAddr("192.0.2.53")},
		V4: &lease.V4{
			Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"), Gateway: netip.MustParseAddr("10.0.2.1"),
			NTPServers: []netip.Addr{netip.MustParseAddr("192.0.2.123")}, BootFile: "pxelinux.0", TFTPServer: "192.0.2.69",
			Private: []lease.Option{{Code: 240, Value: "answer"}},
		},
		V6: &lease.V6{Address: netip.MustParsePrefix("fd10:0:2::2/120"), Router: netip.MustParseAddr("fe80::1"), RouterMAC: podlink.RouterMAC, DefaultRoute: true},
	}
}

// bridged is what a guest is told that has a pod's own address, as Calico gives it.
func bridged() *lease.Config {
	return &lease.Config{
		MAC: podlink.GuestMAC,
		V4: &lease.V4{
			Address: netip.MustParsePrefix("192.168.7.9/32"), Server: netip.MustParseAddr("169.254.75.1"), Gateway: netip.MustParseAddr("169.254.1.1"),
			Routes: []lease.Route{{To: netip.MustParsePrefix("203.0.113.0/25"), Via: netip.MustParseAddr("169.254.1.7")}},
		},
	}
}

// TestUdhcpc: busybox's client is told what it asks for.
func TestUdhcpc(t *testing.T) {
	for name, c := range map[string]struct {
		config *lease.Config
		args   []string
		want   []string
	}{
		"masquerade": {masquerade(), nil, []string{
			"ip=10.0.2.2", "mask=24", "subnet=255.255.255.0", "router=10.0.2.1", "dns=10.96.0.10 192.0.2.53", "mtu=1450", "hostname=web-1",
			"domain=sub.shop.svc.cluster.local", "search=sub.shop.svc.cluster.local shop.svc.cluster.local svc.cluster.local example.org",
			"ntpsrv=192.0.2.123", "tftp=192.0.2.69", "bootfile=pxelinux.0", "boot_file=pxelinux.0", "siaddr=192.0.2.69", "sname=192.0.2.69",
			"serverid=10.0.2.1", "lease=86313600", "opt240=616e73776572",
		}},
		"broadcast":             {masquerade(), []string{"-B"}, []string{"ip=10.0.2.2", "router=10.0.2.1"}},
		"its own address again": {masquerade(), []string{"-r", "10.0.2.2"}, []string{"ip=10.0.2.2"}},
		"another's address":     {masquerade(), []string{"-r", "10.0.2.9"}, []string{"ip=10.0.2.2"}},
		"bridge": {bridged(), nil, []string{
			"ip=192.168.7.9", "mask=32", "serverid=169.254.75.1",
			"staticroutes=169.254.1.1/32 0.0.0.0 203.0.113.0/25 169.254.1.7 0.0.0.0/0 169.254.1.1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			program := podlink.Busybox(t)
			l := newLink(t)
			l.Up()
			l.serve(c.config)
			script, notes := l.Script()
			options := []string{"udhcpc", "-f", "-q", "-n", "-i", "eth0", "-s", script}
			for _, o := range []string{"search", "mtu", "staticroutes", "ntpsrv", "tftp", "bootfile", "240"} {
				options = append(options, "-O", o)
			}
			l.Run(program, append(options, c.args...)...)
			l.Expect(notes, c.want)
		})
	}
}
