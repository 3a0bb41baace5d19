package ndp_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/internal/ndp"
	"github.com/vmlet/vmlet/lease/internal/packet"
)

func solicitation() packet.Packet {
	return packet.Packet{
		From: netip.MustParseAddr("fe80::2"), To: netip.MustParseAddr("ff02::2"), Protocol: packet.ICMPv6, Hops: 255,
		Payload: []byte{133, 0, 1, 2, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 9},
	}
}

func TestIsSolicitation(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*packet.Packet)
		want   bool
	}{
		"whole":           {func(*packet.Packet) {}, true},
		"without options": {func(p *packet.Packet) { p.Payload = p.Payload[:8] }, true},
		"no address yet":  {func(p *packet.Packet) { p.From = netip.IPv6Unspecified() }, true},
		"from afar":       {func(p *packet.Packet) { p.Hops = 254 }, false},
		"global address":  {func(p *packet.Packet) { p.From = netip.MustParseAddr("fd00::1") }, false},
		"another type":    {func(p *packet.Packet) { p.Payload[0] = 134 }, false},
		"another code":    {func(p *packet.Packet) { p.Payload[1] = 1 }, false},
		"UDP":             {func(p *packet.Packet) { p.Protocol = packet.UDP }, false},
		"short":           {func(p *packet.Packet) { p.Payload = p.Payload[:7] }, false},
		"empty option":    {func(p *packet.Packet) { p.Payload[9] = 0 }, false},
		"option cut off":  {func(p *packet.Packet) { p.Payload[9] = 2 }, false},
		"half an option":  {func(p *packet.Packet) { p.Payload = append(p.Payload, 1) }, false},
	} {
		p := solicitation()
		c.change(&p)
		if got := ndp.IsSolicitation(p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func config() *lease.Config {
	return &lease.Config{V6: &lease.V6{Address: netip.MustParsePrefix("fd10:0:2::2/120"), Router: netip.MustParseAddr("fe80::1")}}
}

// TestAdvertisement has each part by itself.
func TestAdvertisement(t *testing.T) {
	const prefix = "0304788005250a8005250a8000000000fd100000000200000000000000000000"
	for name, c := range map[string]struct {
		change func(*lease.Config)
		want   string
	}{
		"least":         {func(*lease.Config) {}, "86000000 40c00000 00000000 00000000" + prefix},
		"default route": {func(c *lease.Config) { c.V6.DefaultRoute = true }, "86000000 40c02328 00000000 00000000" + prefix},
		"own network":   {func(c *lease.Config) { c.V6.Address = netip.MustParsePrefix("fd10::2/128") }, "86000000 40c00000 00000000 00000000"},
		"router's MAC":  {func(c *lease.Config) { c.V6.RouterMAC = lease.MAC{2, 0, 0, 0, 0, 1} }, "86000000 40c00000 00000000 00000000 0101020000000001" + prefix},
		"MTU":           {func(c *lease.Config) { c.MTU = 1450 }, "86000000 40c00000 00000000 00000000 05010000000005aa" + prefix},
		"name servers": {func(c *lease.Config) {
			c.Nameservers = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::b")}
		}, "86000000 40c00000 00000000 00000000" + prefix + "1905000000002328 fd00000000000000000000000000000a fd00000000000000000000000000000b"},
		"domains": {func(c *lease.Config) { c.SearchDomains = []string{"a.b", "cc"} }, "86000000 40c00000 00000000 00000000" + prefix + "1f03000000002328 0161016200026363 0000000000000000"},
	} {
		config := config()
		c.change(config)
		if got, want := hex.EncodeToString(ndp.Advertisement(config)), strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
}

// TestLongAdvertisement: one fits every link, with as many domains as it takes.
func TestLongAdvertisement(t *testing.T) {
	c := config()
	for range 32 {
		c.SearchDomains = append(c.SearchDomains, strings.Repeat("a", 60)+".example.org")
	}
	b := ndp.Advertisement(c)
	if len(b) > 1240 || len(b) < 1150 || len(b)%8 != 0 {
		t.Errorf("%d bytes", len(b))
	}
	if n := bytes.Count(b, []byte("example")); n != 16 {
		t.Errorf("%d domains", n)
	}
}

// FuzzRouterSolicitation: no packet of a guest does any harm.
func FuzzRouterSolicitation(f *testing.F) {
	f.Add(solicitation().Payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		p := solicitation()
		p.Payload = b
		ndp.IsSolicitation(p)
	})
}
