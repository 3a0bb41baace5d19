package lease_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/lease"
)

func full() *lease.Config {
	address, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return &lease.Config{
		MAC: lease.MAC{2, 0, 0, 0, 0, 0x10}, MTU: 1450, Hostname: "web-1", DomainName: "example.org",
		SearchDomains: []string{"shop.svc.cluster.local"}, Nameservers: []netip.Addr{address("10.96.0.10")},
		V4: &lease.V4{
			Address: prefix("192.168.7.9/32"), Server: address("169.254.75.1"), Gateway: address("169.254.1.1"),
			Routes:     []lease.Route{{To: prefix("10.0.0.0/8"), Via: address("169.254.1.1")}, {To: prefix("169.254.1.7/32")}},
			NTPServers: []netip.Addr{address("192.0.2.1")}, BootFile: "a.pxe", TFTPServer: "192.0.2.2",
			Private: []lease.Option{{Code: 224, Value: "x"}, {Code: 254, Value: "y"}},
		},
		V6: &lease.V6{Address: prefix("fd10:0:2::2/120"), Router: address("fe80::1"), RouterMAC: lease.MAC{2}, DefaultRoute: true, BootFileURL: "tftp://[fd00::1]/a"},
	}
}

// TestJSON: agent and shim understand each other.
func TestJSON(t *testing.T) {
	for name, c := range map[string]*lease.Config{"full": full(), "least": {MAC: lease.MAC{2}, V6: &lease.V6{Address: netip.MustParsePrefix("fd10::2/64"), Router: netip.MustParseAddr("fe80::1")}}} {
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got := new(lease.Config)
		if err := json.Unmarshal(b, got); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b)
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %+v comes back as %+v", name, c, got)
		}
		if strings.Contains(string(b), `""`) {
			t.Errorf("%s: what is unset is there: %s", name, b)
		}
	}
}

// TestValidate: each fault by its field, and all at once.
func TestValidate(t *testing.T) {
	if err := full().Validate(); err != nil {
		t.Errorf("a valid configuration: %v", err)
	}
	address, prefix := netip.MustParseAddr, netip.MustParsePrefix
	many := make([]netip.Addr, 17)
	for i := range many {
		many[i] = address("192.0.2.1")
	}
	for want, change := range map[string]func(*lease.Config){
		"mac: ":                             func(c *lease.Config) { c.MAC = lease.MAC{} },
		"mac: 03:":                          func(c *lease.Config) { c.MAC[0] = 3 },
		"mtu: 1279 is not":                  func(c *lease.Config) { c.MTU = 1279 },
		"mtu: 575 is not":                   func(c *lease.Config) { c.MTU, c.V6 = 575, nil },
		"mtu: 65536 is not":                 func(c *lease.Config) { c.MTU = 65536 },
		"hostname: ":                        func(c *lease.Config) { c.Hostname = "a b" },
		"domainName: ":                      func(c *lease.Config) { c.DomainName = "a..b" },
		"searchDomains: 33":                 func(c *lease.Config) { c.SearchDomains = strings.Split(strings.Repeat("a ", 32)+"a", " ") },
		"searchDomains[1]: ":                func(c *lease.Config) { c.SearchDomains = []string{"a", ""} },
		"nameservers: 17":                   func(c *lease.Config) { c.Nameservers = many },
		"nameservers[0]: ":                  func(c *lease.Config) { c.Nameservers[0] = address("fe80::1%eth0") },
		"v4.address: ":                      func(c *lease.Config) { c.V4.Address = prefix("fd00::1/64") },
		"v4.server: ":                       func(c *lease.Config) { c.V4.Server = netip.Addr{} },
		"v4.gateway: ":                      func(c *lease.Config) { c.V4.Gateway = address("224.0.0.1") },
		"v4.routes: 65":                     func(c *lease.Config) { c.V4.Routes = make([]lease.Route, 65) },
		"v4.routes[1].to: ":                 func(c *lease.Config) { c.V4.Routes[1].To = prefix("fd00::/8") },
		"v4.routes[0].via: ":                func(c *lease.Config) { c.V4.Routes[0].Via = address("fe80::1") },
		"v4.ntpServers: 17":                 func(c *lease.Config) { c.V4.NTPServers = many },
		"v4.ntpServers[0]: ":                func(c *lease.Config) { c.V4.NTPServers[0] = address("fd00::1") },
		"v4.bootFile: 256":                  func(c *lease.Config) { c.V4.BootFile = strings.Repeat("x", 256) },
		"v4.tftpServer: 256":                func(c *lease.Config) { c.V4.TFTPServer = strings.Repeat("x", 256) },
		"v4.private[0].code: 223 is not":    func(c *lease.Config) { c.V4.Private[0].Code = 223 },
		"v4.private[1].code: 255 is not":    func(c *lease.Config) { c.V4.Private[1].Code = 255 },
		"v4.private[1].code: 224 is listed": func(c *lease.Config) { c.V4.Private[1].Code = 224 },
		"v4.private[0].value: 0 bytes":      func(c *lease.Config) { c.V4.Private[0].Value = "" },
		"v6.address: ":                      func(c *lease.Config) { c.V6.Address = prefix("fe80::1/64") },
		"v6.router: ":                       func(c *lease.Config) { c.V6.Router = address("fd00::1") },
		"v6.bootFileURL: 256":               func(c *lease.Config) { c.V6.BootFileURL = strings.Repeat("x", 256) },
	} {
		c := full()
		change(c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want one that begins with %q", err, want)
		}
	}
	if err := (&lease.Config{Hostname: "a b"}).Validate(); err == nil || !strings.Contains(err.Error(), "mac: ") || !strings.Contains(err.Error(), "hostname: ") {
		t.Errorf("two faults: %v", err)
	}
}

func TestParseMAC(t *testing.T) {
	if m, err := lease.ParseMAC("02:00:00:00:00:1F"); err != nil || m.String() != "02:00:00:00:00:1f" {
		t.Errorf("%s, %v", m, err)
	}
	for _, text := range []string{"x", "02:00:00:00:00:00:00:01"} {
		if m, err := lease.ParseMAC(text); err == nil {
			t.Errorf("%q is taken for %s", text, m)
		}
	}
}

// TestComplete: what a resolv.conf adds to what the specification says.
func TestComplete(t *testing.T) {
	const conf = `# a comment
nameserver 10.96.0.10
nameserver 127.0.0.53
nameserver fd00::a
nameserver ::1
nameserver fe80::1%eth0
nameserver nonsense
nameserver
domain overridden.example
search shop.svc.cluster.local. Svc.cluster.local bad..name cluster.local
options ndots:5
`
	for name, c := range map[string]struct {
		config                    lease.Config
		servers, domains, useless string
	}{
		"nothing before": {lease.Config{}, "10.96.0.10 fd00::a", "shop.svc.cluster.local. Svc.cluster.local cluster.local", "127.0.0.53 ::1 fe80::1%eth0"},
		"domains before": {
			lease.Config{SearchDomains: []string{"sub.shop.svc.cluster.local", "svc.cluster.local"}}, "10.96.0.10 fd00::a",
			"sub.shop.svc.cluster.local svc.cluster.local shop.svc.cluster.local. cluster.local", "127.0.0.53 ::1 fe80::1%eth0",
		},
		"servers before": {lease.Config{Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, "192.0.2.1", "shop.svc.cluster.local. Svc.cluster.local cluster.local", ""},
	} {
		r, err := lease.ReadResolver(strings.NewReader(conf))
		if err != nil {
			t.Fatal(err)
		}
		useless := c.config.Complete(r)
		if got := words(c.config.Nameservers); got != c.servers {
			t.Errorf("%s: name servers %q, want %q", name, got, c.servers)
		}
		if got := strings.Join(c.config.SearchDomains, " "); got != c.domains {
			t.Errorf("%s: domains %q, want %q", name, got, c.domains)
		}
		if got := words(useless); got != c.useless {
			t.Errorf("%s: useless %q, want %q", name, got, c.useless)
		}
	}
}

func words(all []netip.Addr) string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}

// TestDomain: the guest's own domain is the first that it searches.
func TestDomain(t *testing.T) {
	for _, c := range []struct {
		config lease.Config
		want   string
	}{
		{lease.Config{}, ""},
		{lease.Config{SearchDomains: []string{"a.b.", "c"}}, "a.b"},
		{lease.Config{SearchDomains: []string{"a.b."}, DomainName: "d"}, "d"},
	} {
		if got := c.config.Domain(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}

// FuzzResolvConf: what comes of a pod's file makes a valid configuration.
func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 10.96.0.10\nsearch a b.c\n")
	f.Add("domain a." + strings.Repeat("b", 70) + "\nnameserver ::ffff:1.2.3.4\nnameserver 0.0.0.0\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := lease.ReadResolver(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := full()
		c.Nameservers = nil
		c.Complete(r)
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	})
}
