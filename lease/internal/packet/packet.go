// Package packet takes IP packets of a guest apart, and puts together those that it is
// sent.
package packet

import (
	"encoding/binary"
	"net/netip"
)

// Protocols that are carried.
const (
	UDP    = 17
	ICMPv6 = 58
)

const (
	header4, header6, headerUDP = 20, 40, 8
	// hops of all that is sent. Neighbours' messages that have less are not believed
	// (RFC 4861).
	hops = 255
)

// Packet is one that came in.
type Packet struct {
	From, To netip.Addr
	Protocol byte
	Hops     byte
	// Ports of UDP.
	FromPort, ToPort uint16
	Payload          []byte // of UDP, or the whole message of ICMPv6
}

// Parse takes a packet apart that is no fragment. Checksums aren't looked at: a guest may
// leave them to a device that has none to do it, and a frame doesn't change on its way here.
func Parse(b []byte) (p Packet, ok bool) {
	if len(b) == 0 {
		return p, false
	}
	switch b[0] >> 4 {
	case 4:
		b, ok = p.parse4(b)
	case 6:
		b, ok = p.parse6(b)
	}
	switch {
	case !ok:
		return p, false
	case p.Protocol == ICMPv6:
		p.Payload = b
		return p, true
	case p.Protocol != UDP || len(b) < headerUDP:
		return p, false
	}
	size := int(binary.BigEndian.Uint16(b[4:]))
	if size < headerUDP || size > len(b) {
		return p, false
	}
	p.FromPort, p.ToPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	p.Payload = b[headerUDP:size]
	return p, true
}

func (p *Packet) parse4(b []byte) ([]byte, bool) {
	if len(b) < header4 {
		return nil, false
	}
	start, end := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0
	if start < header4 || end < start || end > len(b) || fragment {
		return nil, false
	}
	p.From, p.To = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.Hops, p.Protocol = b[8], b[9]
	return b[start:end], true
}

func (p *Packet) parse6(b []byte) ([]byte, bool) {
	if len(b) < header6 {
		return nil, false
	}
	end := header6 + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return nil, false
	}
	p.From, p.To = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	p.Protocol, p.Hops = b[6], b[7]
	return b[header6:end], true
}

// Datagram returns a packet with UDP. Both addresses are of one family.
func Datagram(from, to netip.AddrPort, payload []byte) []byte {
	b := make([]byte, headerUDP, headerUDP+len(payload))
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(headerUDP+len(payload)))
	b = append(b, payload...)
	sum := checksum(pseudo(from.Addr(), to.Addr(), UDP, len(b)), b)
	if sum == 0 { // which would say that there is none
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], sum)
	return wrap(from.Addr(), to.Addr(), UDP, b)
}

// Control returns a packet with an ICMPv6 message, whose checksum it fills in.
func Control(from, to netip.Addr, message []byte) []byte {
	binary.BigEndian.PutUint16(message[2:], 0)
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo(from, to, ICMPv6, len(message)), message))
	return wrap(from, to, ICMPv6, message)
}

func wrap(from, to netip.Addr, protocol byte, b []byte) []byte {
	if from.Is4() {
		h := make([]byte, header4, header4+len(b))
		h[0], h[8], h[9] = 0x45, hops, protocol
		binary.BigEndian.PutUint16(h[2:], uint16(header4+len(b)))
		copy(h[12:], from.AsSlice())
		copy(h[16:], to.AsSlice())
		binary.BigEndian.PutUint16(h[10:], checksum(0, h))
		return append(h, b...)
	}
	h := make([]byte, header6, header6+len(b))
	h[0], h[6], h[7] = 0x60, protocol, hops
	binary.BigEndian.PutUint16(h[4:], uint16(len(b)))
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	return append(h, b...)
}

// pseudo is the sum of the header that checksums count in beside the message.
func pseudo(from, to netip.Addr, protocol byte, size int) uint32 {
	return add(add(uint32(protocol)+uint32(size), from.AsSlice()), to.AsSlice())
}

func checksum(sum uint32, b []byte) uint16 {
	sum = add(sum, b)
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// add can't overflow: a packet has less than 64 KiB.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}
