package packet_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/vmlet/vmlet/lease/internal/packet"
)

var (
	from4, to4 = netip.MustParseAddrPort("10.0.2.2:68"), netip.MustParseAddrPort("10.0.2.1:67")
	from6, to6 = netip.MustParseAddrPort("[fe80::2]:546"), netip.MustParseAddrPort("[ff02::1:2]:547")
)

// TestRoundTrip: what is put together is taken apart as it was.
func TestRoundTrip(t *testing.T) {
	for _, ends := range [][2]netip.AddrPort{{from4, to4}, {from6, to6}} {
		p, ok := packet.Parse(append(packet.Datagram(ends[0], ends[1], []byte("question")), "beyond"...))
		if !ok {
			t.Fatalf("%s: not taken apart", ends[0])
		}
		if got := netip.AddrPortFrom(p.From, p.FromPort); got != ends[0] {
			t.Errorf("from %s, want %s", got, ends[0])
		}
		if got := netip.AddrPortFrom(p.To, p.ToPort); got != ends[1] {
			t.Errorf("to %s, want %s", got, ends[1])
		}
		if string(p.Payload) != "question" || p.Hops != 255 {
			t.Errorf("%s: %q, %d hops", ends[0], p.Payload, p.Hops)
		}
	}
	p, ok := packet.Parse(packet.Control(from6.Addr(), to6.Addr(), []byte{133, 0, 9, 9, 0, 0, 0, 0}))
	if !ok || p.Protocol != packet.ICMPv6 || p.Payload[0] != 133 {
		t.Errorf("ICMPv6: %v %+v", ok, p)
	}
}

// TestMalformed: what is not whole isn't taken apart.
func TestMalformed(t *testing.T) {
	four, six := packet.Datagram(from4, to4, []byte("question")), packet.Datagram(from6, to6, []byte("question"))
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"empty":                     nil,
		"another version":           change(four, 0, 0x55),
		"IPv4: short":               four[:19],
		"IPv4: short header":        change(four, 0, 0x44),
		"IPv4: header over the end": change(change(four, 0, 0x4f), 3, 28),
		"IPv4: cut off":             four[:len(four)-1],
		"IPv4: more fragments":      change(four, 6, 0x20),
		"IPv4: last fragment":       change(four, 7, 1),
		"IPv4: TCP":                 change(four, 9, 6),
		"IPv4: UDP too short":       change(four, 25, 7),
		"IPv4: UDP too long":        change(four, 25, 17),
		"IPv4: no UDP header":       change(four, 3, 27),
		"IPv6: short":               six[:39],
		"IPv6: cut off":             six[:len(six)-1],
		"IPv6: extension header":    change(six, 6, 0),
		"IPv6: UDP too long":        change(six, 45, 17),
	} {
		if p, ok := packet.Parse(b); ok {
			t.Errorf("%s: taken apart: %+v", name, p)
		}
	}
}

// FuzzPacket: what is taken apart was in the packet.
func FuzzPacket(f *testing.F) {
	f.Add(packet.Datagram(from4, to4, []byte("question")))
	f.Add(packet.Datagram(from6, to6, []byte("question")))
	f.Add(packet.Control(from6.Addr(), to6.Addr(), make([]byte, 8)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := packet.Parse(b); ok && !bytes.Contains(b, p.Payload) {
			t.Errorf("%q is not in the packet", p.Payload)
		}
	})
}
