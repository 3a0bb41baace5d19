package dhcp4

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// encoder writes a message. Options that find no room in their field go to those of the
// boot file's and the server's name, where these are empty (RFC 2132, 9.3).
type encoder struct {
	b       []byte // BOOTP's part
	kind    Kind
	areas   [3]area
	leftOut []byte
}

// area is a field that has options; its end is not in it.
type area struct {
	options []byte
	most    int
}

const (
	inOptions = iota
	inFile    // bit 0 of option 52
	inName    // bit 1
)

const (
	fileSize, nameSize = 128, 64
	endSize            = 1
	overloadSize       = 3
	// leastSize is a message's: some clients throw shorter ones away (RFC 1542).
	leastSize = 300
	longest   = 255
)

// newEncoder begins the answer to a message, of that many bytes at most.
func newEncoder(m *Message, kind Kind, most int) *encoder {
	e := &encoder{b: make([]byte, atOptions), kind: kind}
	e.b[0], e.b[1], e.b[2] = opReply, ethernet, byte(len(m.Hardware))
	copy(e.b[atTransaction:], m.Transaction[:])
	if m.Broadcast {
		binary.BigEndian.PutUint16(e.b[atFlags:], flagBroadcast)
	}
	if kind != Nak {
		copy(e.b[atClient:], m.Client.AsSlice())
	}
	copy(e.b[atHardware:], m.Hardware[:])
	binary.BigEndian.PutUint32(e.b[atCookie:], cookie)
	e.areas[inOptions].most = most - atOptions - endSize - overloadSize
	e.areas[inFile].most, e.areas[inName].most = fileSize-endSize, nameSize-endSize
	e.put(optKind, []byte{byte(kind)})
	return e
}

// identify gives the client its identifier back (RFC 6842).
func (e *encoder) identify(m *Message) {
	if len(m.ClientID) > 0 {
		e.put(optClientID, m.ClientID)
	}
}

// boot fills in BOOTP's own fields, which are not for options then. Firmware looks for the
// server's address there.
func (e *encoder) boot(file, server string) {
	if file != "" && len(file) < fileSize {
		copy(e.b[atFile:atCookie], file)
		e.areas[inFile].most = 0
	}
	if server == "" {
		return
	}
	if a, err := netip.ParseAddr(server); err == nil && a.Is4() {
		copy(e.b[atNext:], a.AsSlice())
	}
	if len(server) < nameSize {
		copy(e.b[atServerName:atFile], server)
		e.areas[inName].most = 0
	}
}

// put writes an option where there is room for all of it; a long one in pieces (RFC 3396).
func (e *encoder) put(code byte, value []byte) {
	var option []byte
	for piece := range slices.Chunk(value, longest) {
		option = append(append(option, code, byte(len(piece))), piece...)
	}
	for i := range e.areas {
		a := &e.areas[i]
		if len(a.options)+len(option) <= a.most {
			a.options = append(a.options, option...)
			return
		}
	}
	e.leftOut = append(e.leftOut, code)
}

func (e *encoder) answer(to netip.Addr) *Answer {
	var overload byte
	for i, field := range [][]byte{inFile: e.b[atFile:atCookie], inName: e.b[atServerName:atFile]} {
		if i == inOptions || len(e.areas[i].options) == 0 {
			continue
		}
		overload |= 1 << (i - 1)
		field[copy(field, e.areas[i].options)] = optEnd
	}
	b := append(e.b, e.areas[inOptions].options...)
	if overload != 0 {
		b = append(b, optOverload, 1, overload)
	}
	b = append(b, optEnd)
	if len(b) < leastSize {
		b = append(b, make([]byte, leastSize-len(b))...)
	}
	return &Answer{Kind: e.kind, To: to, Payload: b, LeftOut: e.leftOut}
}
