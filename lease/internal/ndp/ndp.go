// Package ndp reads router solicitations and writes router advertisements (RFC 4861, 8106).
package ndp

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/internal/domains"
	"github.com/vmlet/vmlet/lease/internal/packet"
)

// An advertisement counts for Lifetime, and the next is sent MinInterval to MaxInterval
// after it: as long as the standard allows, as each wakes the guest.
const (
	Lifetime    = 9000 * time.Second
	MinInterval = 600 * time.Second
	MaxInterval = 1800 * time.Second
)

const (
	typeSolicitation  = 133
	typeAdvertisement = 134

	optSource      = 1
	optPrefix      = 3
	optMTU         = 5
	optNameservers = 25
	optSearch      = 31

	managed, other = 0x80, 0x40 // addresses, and all else, come by DHCPv6
	onLink         = 0x80
	hopLimit       = 64
	neighbourHops  = 255
	solicitation   = 8 // bytes at least

	// maxMessage is what every link carries, without IP's header.
	maxMessage = 1280 - 40
)

// AllNodes is the address of all on a link.
func AllNodes() netip.Addr { return netip.IPv6LinkLocalAllNodes() }

// IsSolicitation tells whether that is a router solicitation, from a neighbour.
func IsSolicitation(p packet.Packet) bool {
	b := p.Payload
	if p.Protocol != packet.ICMPv6 || p.Hops != neighbourHops || len(b) < solicitation || b[0] != typeSolicitation || b[1] != 0 {
		return false
	}
	if !p.From.IsUnspecified() && !p.From.IsLinkLocalUnicast() {
		return false
	}
	// Nothing in its options counts, but they must be whole.
	for b = b[solicitation:]; len(b) > 0; b = b[8*int(b[1]):] {
		if len(b) < 8 || b[1] == 0 || 8*int(b[1]) > len(b) {
			return false
		}
	}
	return true
}

// Advertisement writes one, without its checksum, of a valid configuration with a V6.
func Advertisement(c *lease.Config) []byte {
	v, life := c.V6, uint32(Lifetime/time.Second)
	b := make([]byte, 16)
	b[0], b[4], b[5] = typeAdvertisement, hopLimit, managed|other
	if v.DefaultRoute {
		binary.BigEndian.PutUint16(b[6:], uint16(life))
	}
	if v.RouterMAC != (lease.MAC{}) {
		b = append(b, option(optSource, v.RouterMAC[:])...)
	}
	if c.MTU != 0 {
		b = append(b, option(optMTU, binary.BigEndian.AppendUint32(make([]byte, 2), uint32(c.MTU)))...)
	}
	if v.Address.Bits() < 128 {
		b = append(b, prefix(v.Address.Masked())...)
	}
	if n := nameservers(c, life); n != nil {
		b = append(b, n...)
	}
	return append(b, search(c, life, maxMessage-len(b))...)
}

// prefix says that it is on the link; nobody makes addresses in it by himself.
func prefix(p netip.Prefix) []byte {
	life := uint32(lease.Time.Seconds())
	b := []byte{byte(p.Bits()), onLink}
	b = binary.BigEndian.AppendUint32(b, life)
	b = binary.BigEndian.AppendUint32(b, life)
	b = append(b, make([]byte, 4)...)
	return option(optPrefix, append(b, p.Addr().AsSlice()...))
}

func nameservers(c *lease.Config, life uint32) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 2), life)
	none := len(b)
	for _, a := range c.Nameservers {
		if a.Is6() && !a.Is4In6() {
			b = append(b, a.AsSlice()...)
		}
	}
	if len(b) == none {
		return nil
	}
	return option(optNameservers, b)
}

// search has as many of the domains as there is room for.
func search(c *lease.Config, life uint32, room int) []byte {
	var o []byte
	b := binary.BigEndian.AppendUint32(make([]byte, 2), life)
	for _, name := range c.SearchDomains {
		b = domains.Append(b, name)
		longer := option(optSearch, b)
		if len(longer) > room {
			break
		}
		o = longer
	}
	return o
}

// option pads the value to a multiple of eight bytes, with type and length.
func option(code byte, value []byte) []byte {
	units := (2 + len(value) + 7) / 8
	b := make([]byte, 8*units)
	b[0], b[1] = code, byte(units)
	copy(b[2:], value)
	return b
}
