package podnet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func good() Network {
	return Network{Binding: Masquerade, Interface: "eth0", MAC: "52:54:00:00:00:01", CIDR: netip.MustParsePrefix("10.0.2.0/24"), IPv6CIDR: netip.MustParsePrefix("fd10:0:2::/120")}
}

// TestCheck: what would lead out of the pod, or into the kernel's names, is refused by field.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Plan)
		want   string
	}{
		"good":            {func(*Plan) {}, ""},
		"bridge":          {func(p *Plan) { p.Networks[0] = Network{Binding: Bridge, Interface: "net1"} }, ""},
		"none":            {func(p *Plan) { p.Networks = nil }, "networks: 0"},
		"too many":        {func(p *Plan) { p.Networks = make([]Network, MaxNetworks+1) }, "networks: 17"},
		"no interface":    {func(p *Plan) { p.Networks[0].Interface = "" }, "networks[0].interface"},
		"a path":          {func(p *Plan) { p.Networks[0].Interface = "../../kernel" }, "networks[0].interface"},
		"up":              {func(p *Plan) { p.Networks[0].Interface = ".." }, "networks[0].interface"},
		"all interfaces":  {func(p *Plan) { p.Networks[0].Interface = "all" }, "networks[0].interface"},
		"loopback":        {func(p *Plan) { p.Networks[0].Interface = "lo" }, "networks[0].interface"},
		"a pattern":       {func(p *Plan) { p.Networks[0].Interface = "eth%d" }, "networks[0].interface"},
		"a long name":     {func(p *Plan) { p.Networks[0].Interface = "a234567890123456" }, "networks[0].interface"},
		"binding":         {func(p *Plan) { p.Networks[0].Binding = "slirp" }, "networks[0].binding"},
		"queues":          {func(p *Plan) { p.Networks[0].Queues = 17 }, "networks[0].queues"},
		"no MAC":          {func(p *Plan) { p.Networks[0].MAC = "" }, "networks[0].mac"},
		"a multicast MAC": {func(p *Plan) { p.Networks[0].MAC = "53:54:00:00:00:01" }, "networks[0].mac"},
		"too many descriptors": {func(p *Plan) {
			for i := range 8 {
				p.Networks = append(p.Networks, Network{Binding: Bridge, Interface: fmt.Sprint("net", i), Queues: MaxQueues})
			}
		}, "networks[7].queues"},
		"no CIDR":               {func(p *Plan) { p.Networks[0].CIDR = netip.Prefix{} }, "networks[0].cidr"},
		"IPv6 as IPv4":          {func(p *Plan) { p.Networks[0].CIDR = p.Networks[0].IPv6CIDR }, "networks[0].cidr"},
		"an address":            {func(p *Plan) { p.Networks[0].CIDR = netip.MustParsePrefix("10.0.2.1/24") }, "networks[0].cidr"},
		"everything":            {func(p *Plan) { p.Networks[0].CIDR = netip.MustParsePrefix("0.0.0.0/0") }, "networks[0].cidr"},
		"no room":               {func(p *Plan) { p.Networks[0].CIDR = netip.MustParsePrefix("10.0.2.0/31") }, "networks[0].cidr"},
		"loopback addresses":    {func(p *Plan) { p.Networks[0].CIDR = netip.MustParsePrefix("127.0.0.0/24") }, "networks[0].cidr"},
		"IPv4 as IPv6":          {func(p *Plan) { p.Networks[0].IPv6CIDR = netip.MustParsePrefix("::ffff:10.0.0.0/120") }, "networks[0].ipv6CIDR"},
		"a protocol":            {func(p *Plan) { p.Networks[0].Ports = []Ports{{"sctp", 1, 1}} }, "networks[0].ports[0].protocol"},
		"port 0":                {func(p *Plan) { p.Networks[0].Ports = []Ports{{"tcp", 0, 1}} }, "networks[0].ports[0]"},
		"a range the wrong way": {func(p *Plan) { p.Networks[0].Ports = []Ports{{"tcp", 2, 1}} }, "networks[0].ports[0]"},
		"too many ports":        {func(p *Plan) { p.Networks[0].Ports = make([]Ports, MaxPorts+1) }, "networks[0].ports"},
		"twice":                 {func(p *Plan) { p.Networks = append(p.Networks, Network{Binding: Bridge, Interface: "eth0"}) }, "networks[1].interface"},
		"two masquerades": {func(p *Plan) {
			p.Networks = append(p.Networks, good())
			p.Networks[1].Interface = "net1"
		}, "networks[1].binding"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Plan{Networks: []Network{good()}}
			c.change(&p)
			err := p.Check()
			if (err == nil) != (c.want == "") {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestNames: each fits the kernel's 15 bytes, and two interfaces of a pod never share one.
func TestNames(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{"eth0", "net1", "a2345678901", "pod0123456789a", "pod0123456789b", "a23456789012345", "a23456789012346"} {
		n := Network{Interface: name}
		for _, made := range []string{n.BridgeName(), n.NICName(), n.TapName()} {
			if len(made) > maxName {
				t.Errorf("%s: %s has %d bytes", name, made, len(made))
			}
			if of, taken := seen[made]; taken {
				t.Errorf("%s: %s is that of %s", name, made, of)
			}
			seen[made] = name
		}
	}
	if got := (Network{Interface: "pod0123456789a"}).BridgeName(); got != "k6t-0123456789a" {
		t.Errorf("of a secondary network: %s", got)
	}
}
