package socket

import (
	"encoding/binary"

	"golang.org/x/net/bpf"

	"github.com/vmlet/vmlet/lease"
)

const (
	portDHCPv4 = 67
	portDHCPv6 = 547

	protocolUDP        = 17
	protocolICMPv6     = 58
	routerSolicitation = 133
)

// linkLayer is where filters find the frame's header (SKF_LL_OFF): a packet socket's
// own data begins at the IP header.
const linkLayer = 0xffe00000

// admitV4 takes in what the guest sends to a DHCPv4 server, whole.
func admitV4(guest lease.MAC) []bpf.Instruction {
	const version, fragment, protocol = 0, 6, 9
	p := newProgram(guest)
	p.only(protocol, 1, protocolUDP)
	p.none(fragment, 2, 0x3fff)
	p.add(bpf.LoadMemShift{Off: version}, bpf.LoadIndirect{Off: 2, Size: 2})
	p.equal(portDHCPv4)
	return p.accept()
}

// admitV6 takes in the guest's router solicitations and what it sends to a DHCPv6 server.
// Neither has extension headers.
func admitV6(guest lease.MAC) []bpf.Instruction {
	const next, header = 6, 40
	p := newProgram(guest)
	p.add(bpf.LoadAbsolute{Off: next, Size: 1})
	// UDP is looked at here, ICMPv6 below.
	p.add(bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolUDP, SkipTrue: 4})
	p.add(bpf.LoadAbsolute{Off: header + 2, Size: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: portDHCPv6, SkipFalse: 1})
	p.add(bpf.RetConstant{Val: maxPacket}, bpf.RetConstant{})
	p.equal(protocolICMPv6)
	p.only(header, 1, routerSolicitation)
	return p.accept()
}

// program is a filter under way: what one of its conditions doesn't hold for is dropped.
type program []bpf.Instruction

// newProgram begins with the condition that the guest sent it.
func newProgram(guest lease.MAC) *program {
	const source = linkLayer + 6
	p := new(program)
	p.only(source, 4, binary.BigEndian.Uint32(guest[:4]))
	p.only(source+4, 2, uint32(binary.BigEndian.Uint16(guest[4:])))
	return p
}

func (p *program) add(more ...bpf.Instruction) { *p = append(*p, more...) }

// only: the bytes at an offset have that value.
func (p *program) only(offset uint32, size int, value uint32) {
	p.add(bpf.LoadAbsolute{Off: offset, Size: size})
	p.equal(value)
}

// equal: what was loaded last has that value.
func (p *program) equal(value uint32) {
	p.add(bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1}, bpf.RetConstant{})
}

// none: no bit of the mask is set.
func (p *program) none(offset uint32, size int, mask uint32) {
	p.add(bpf.LoadAbsolute{Off: offset, Size: size}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: mask, SkipTrue: 1}, bpf.RetConstant{})
}

func (p *program) accept() []bpf.Instruction {
	return append(*p, bpf.RetConstant{Val: maxPacket})
}
