package dhcp4

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/internal/domains"
)

// Responder answers one guest.
type Responder struct {
	c  *lease.Config
	v4 *lease.V4
	// options that every client gets, the most important first: an answer may not
	// have room for all.
	options []option
}

type option struct {
	code  byte
	value []byte
}

// Answer is what a client is sent.
type Answer struct {
	Kind    Kind
	To      netip.Addr
	Payload []byte
	// LeftOut are options for which the client has no room.
	LeftOut []byte
}

// NewResponder takes a valid configuration with a V4, and keeps it.
func NewResponder(c *lease.Config) *Responder {
	return &Responder{c: c, v4: c.V4, options: told(c)}
}

// Answer returns nil where none is due.
func (r *Responder) Answer(m *Message) *Answer {
	if m.Hardware != r.c.MAC || m.Server.IsValid() && m.Server != r.v4.Server {
		return nil
	}
	switch m.Kind {
	case Discover:
		return r.offer(m, Offer)
	case Inform:
		return r.inform(m)
	case Request:
		return r.request(m)
	}
	return nil
}

// request is that for an address which was offered, or which the client had before.
func (r *Responder) request(m *Message) *Answer {
	wanted := m.Requested
	if !wanted.IsValid() {
		wanted = m.Client
	}
	if wanted == r.v4.Address.Addr() {
		return r.offer(m, Ack)
	}
	e := newEncoder(m, Nak, minSize)
	e.put(optServer, r.v4.Server.AsSlice())
	e.identify(m)
	// Without an address of this network the client hears broadcasts alone.
	return e.answer(broadcast())
}

func (r *Responder) offer(m *Message, kind Kind) *Answer {
	e := newEncoder(m, kind, r.room(m))
	copy(e.b[atYours:], r.v4.Address.Addr().AsSlice())
	e.put(optServer, r.v4.Server.AsSlice())
	e.put(optLeaseTime, binary.BigEndian.AppendUint32(nil, uint32(lease.Time.Seconds())))
	r.tell(e, m)
	switch {
	case m.Kind == Request && !m.Client.IsUnspecified():
		return e.answer(m.Client)
	case m.Broadcast:
		return e.answer(broadcast())
	}
	return e.answer(r.v4.Address.Addr())
}

// inform answers a client that has its address from elsewhere.
func (r *Responder) inform(m *Message) *Answer {
	if m.Client.IsUnspecified() {
		return nil
	}
	e := newEncoder(m, Ack, r.room(m))
	e.put(optServer, r.v4.Server.AsSlice())
	r.tell(e, m)
	return e.answer(m.Client)
}

// tell puts in the options; those that the client wants come first, if room is short.
func (r *Responder) tell(e *encoder, m *Message) {
	e.identify(m)
	e.boot(r.v4.BootFile, r.v4.TFTPServer)
	for _, wanted := range []bool{true, false} {
		for _, o := range r.options {
			if slices.Contains(m.Wanted, o.code) == wanted {
				e.put(o.code, o.value)
			}
		}
	}
}

const (
	// headers of IP and UDP.
	headers = 28
	// minSize is what every client takes (RFC 2131).
	minSize = 576 - headers
	// ordinary is Ethernet's MTU.
	ordinary = 1500
)

// room returns how many bytes the answer may have.
func (r *Responder) room(m *Message) int {
	most := ordinary
	if r.c.MTU != 0 {
		most = min(most, r.c.MTU)
	}
	return max(minSize, min(m.MaxSize, most)-headers)
}

func broadcast() netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, 255}) }

// told returns what every client gets.
func told(c *lease.Config) (all []option) {
	v := c.V4
	put := func(code byte, value []byte) {
		if len(value) > 0 {
			all = append(all, option{code, value})
		}
	}
	put(optMask, binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-v.Address.Bits())))
	put(optRoutes, routes(v))
	if v.Gateway.IsValid() {
		put(optRouter, v.Gateway.AsSlice())
	}
	put(optNameservers, addresses(c.Nameservers))
	if c.MTU != 0 {
		put(optMTU, binary.BigEndian.AppendUint16(nil, uint16(c.MTU)))
	}
	put(optHostname, []byte(c.Hostname))
	put(optDomain, []byte(c.Domain()))
	put(optSearch, domains.Compress(c.SearchDomains...))
	put(optTFTPServer, []byte(v.TFTPServer))
	put(optBootFile, []byte(v.BootFile))
	put(optNTP, addresses(v.NTPServers))
	for _, o := range v.Private {
		put(byte(o.Code), []byte(o.Value))
	}
	return all
}

func addresses(all []netip.Addr) (b []byte) {
	for _, a := range all {
		if a.Is4() {
			b = append(b, a.AsSlice()...)
		}
	}
	return b
}

// routes returns the classless static routes (RFC 3442). Anyone who reads them does not look
// at the router, so that the default route is among them. None: the router says it all.
func routes(v *lease.V4) (b []byte) {
	outside := v.Gateway.IsValid() && !v.Address.Contains(v.Gateway)
	if len(v.Routes) == 0 && !outside {
		return nil
	}
	if outside {
		b = route(b, netip.PrefixFrom(v.Gateway, 32), netip.Addr{})
	}
	for _, r := range v.Routes {
		b = route(b, r.To, r.Via)
	}
	if v.Gateway.IsValid() {
		b = route(b, netip.PrefixFrom(netip.IPv4Unspecified(), 0), v.Gateway)
	}
	return b
}

func route(b []byte, to netip.Prefix, via netip.Addr) []byte {
	if !via.IsValid() {
		via = netip.IPv4Unspecified()
	}
	significant := to.Masked().Addr().AsSlice()[:(to.Bits()+7)/8]
	return append(append(append(b, byte(to.Bits())), significant...), via.AsSlice()...)
}
