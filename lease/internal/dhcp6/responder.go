package dhcp6

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/internal/domains"
)

// Status codes.
const (
	statusSuccess   = 0
	statusNoAddress = 2
	statusNotOnLink = 4
)

// mostPreferred has a client take an offer at once, and not wait for others.
const mostPreferred = 255

// maxReply is what every link carries, without the headers of IP and UDP.
const maxReply = 1280 - 40 - 8

// Responder answers one guest.
type Responder struct {
	v6          *lease.V6
	identity    []byte
	nameservers []byte
	search      []byte
}

// Answer is what a client is sent.
type Answer struct {
	Kind    Kind
	Payload []byte
	// LeftOut are options for which there is no room.
	LeftOut []uint16
}

// NewResponder takes a valid configuration with a V6, and keeps it.
func NewResponder(c *lease.Config) *Responder {
	r := &Responder{v6: c.V6, identity: identity(c.V6.Router), search: domains.Append(nil, c.SearchDomains...)}
	for _, a := range c.Nameservers {
		if a.Is6() && !a.Is4In6() {
			r.nameservers = append(r.nameservers, a.AsSlice()...)
		}
	}
	return r
}

// identity makes a DUID of the address at which the guest knows the server: it is the same
// in the next pod of the VM.
func identity(router netip.Addr) []byte {
	const ofUUID = 4 // RFC 6355
	return append(binary.BigEndian.AppendUint16(nil, ofUUID), router.AsSlice()...)
}

// Answer returns nil where none is due.
func (r *Responder) Answer(m *Message) *Answer {
	if m.ClientID == nil && m.Kind != InformationRequest || !r.addressed(m) {
		return nil
	}
	e := r.encoder(m)
	switch m.Kind {
	case Solicit:
		return r.offer(e, m)
	case Request, Renew, Rebind:
		r.assign(e, m)
	case Confirm:
		if !r.confirm(e, m) {
			return nil
		}
		return e.answer()
	case Release, Decline:
		e.status(statusSuccess)
		return e.answer()
	}
	r.tell(e, m)
	return e.answer()
}

// addressed tells whether a message of its kind is for this server.
func (r *Responder) addressed(m *Message) bool {
	switch m.Kind {
	case Solicit, Confirm, Rebind:
		return m.ServerID == nil
	case Request, Renew, Release, Decline:
		return bytes.Equal(m.ServerID, r.identity)
	case InformationRequest:
		return m.ServerID == nil || bytes.Equal(m.ServerID, r.identity)
	}
	return false
}

func (r *Responder) encoder(m *Message) *encoder {
	e := &encoder{b: []byte{byte(Reply), m.Transaction[0], m.Transaction[1], m.Transaction[2]}}
	if m.ClientID != nil {
		e.put(optClientID, m.ClientID)
	}
	e.put(optServerID, r.identity)
	return e
}

func (r *Responder) offer(e *encoder, m *Message) *Answer {
	if m.RapidCommit {
		e.put(optRapidCommit, nil)
	} else {
		e.b[0] = byte(Advertise)
		e.put(optPreference, []byte{mostPreferred})
	}
	r.assign(e, m)
	r.tell(e, m)
	return e.answer()
}

// assign gives the first that asks for addresses the guest's one, and takes others from it.
func (r *Responder) assign(e *encoder, m *Message) {
	life := uint32(lease.Time.Seconds())
	for n, i := range m.IANAs {
		b := slices.Clone(i.ID[:])
		if n > 0 {
			b = append(binary.BigEndian.AppendUint64(b, 0), status(statusNoAddress)...)
			e.put(optIANA, b)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, life/2)
		b = binary.BigEndian.AppendUint32(b, life/5*4)
		b = append(b, address(r.v6.Address.Addr(), life)...)
		for _, a := range i.Addresses {
			if a != r.v6.Address.Addr() && m.Kind != Solicit {
				b = append(b, address(a, 0)...)
			}
		}
		e.put(optIANA, b)
	}
}

// confirm says whether the addresses that a client has from before are still its own. It
// is false if there are none.
func (r *Responder) confirm(e *encoder, m *Message) bool {
	asked, code := false, uint16(statusSuccess)
	for _, i := range m.IANAs {
		for _, a := range i.Addresses {
			asked = true
			if a != r.v6.Address.Addr() {
				code = statusNotOnLink
			}
		}
	}
	e.status(code)
	return asked
}

func (r *Responder) tell(e *encoder, m *Message) {
	if len(r.nameservers) > 0 {
		e.put(optNameservers, r.nameservers)
	}
	if len(r.search) > 0 {
		e.put(optSearch, r.search)
	}
	if r.v6.BootFileURL != "" && m.wants(optBootFileURL) {
		e.put(optBootFileURL, []byte(r.v6.BootFileURL))
	}
}

// encoder writes a message.
type encoder struct {
	b       []byte
	leftOut []uint16
}

func (e *encoder) put(code uint16, value []byte) {
	if o := option(code, value); len(e.b)+len(o) <= maxReply {
		e.b = append(e.b, o...)
	} else {
		e.leftOut = append(e.leftOut, code)
	}
}

func (e *encoder) status(code uint16) {
	e.put(optStatus, binary.BigEndian.AppendUint16(nil, code))
}

func (e *encoder) answer() *Answer {
	return &Answer{Kind: Kind(e.b[0]), Payload: e.b, LeftOut: e.leftOut}
}

func option(code uint16, value []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, code)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

func status(code uint16) []byte { return option(optStatus, binary.BigEndian.AppendUint16(nil, code)) }

// address is one that may be preferred and used for so many seconds.
func address(a netip.Addr, life uint32) []byte {
	b := binary.BigEndian.AppendUint32(a.AsSlice(), life)
	return option(optAddress, binary.BigEndian.AppendUint32(b, life))
}
