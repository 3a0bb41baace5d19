// Package dhcp4 reads what a DHCPv4 client asks and makes the answers (RFC 2131, 2132).
package dhcp4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vmlet/vmlet/lease"
)

// Ports of server and client.
const (
	ServerPort = 67
	ClientPort = 68
)

// Kind of a message, option 53.
type Kind byte

const (
	Discover Kind = 1
	Offer    Kind = 2
	Request  Kind = 3
	Decline  Kind = 4
	Ack      Kind = 5
	Nak      Kind = 6
	Release  Kind = 7
	Inform   Kind = 8
)

func (k Kind) String() string {
	names := [...]string{"", "discover", "offer", "request", "decline", "ack", "nak", "release", "inform"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprint(byte(k))
}

// Offsets of BOOTP's fields (RFC 951).
const (
	atTransaction = 4
	atFlags       = 10
	atClient      = 12
	atYours       = 16
	atNext        = 20
	atRelay       = 24
	atHardware    = 28
	atServerName  = 44
	atFile        = 108
	atCookie      = 236
	atOptions     = 240

	opRequest, opReply = 1, 2
	ethernet           = 1
	flagBroadcast      = 0x8000
	cookie             = 0x63825363
)

// Options that are read or written.
const (
	optPad         = 0
	optMask        = 1
	optRouter      = 3
	optNameservers = 6
	optHostname    = 12
	optDomain      = 15
	optMTU         = 26
	optNTP         = 42
	optRequested   = 50
	optLeaseTime   = 51
	optOverload    = 52
	optKind        = 53
	optServer      = 54
	optWanted      = 55
	optMaxSize     = 57
	optClientID    = 61
	optTFTPServer  = 66
	optBootFile    = 67
	optSearch      = 119
	optRoutes      = 121
	optEnd         = 255
)

// Message is what counts of a client's message. Its slices are parts of the message.
type Message struct {
	Kind        Kind
	Transaction [4]byte
	// Broadcast: the client takes no packet for an address that it doesn't have yet.
	Broadcast bool
	Client    netip.Addr // that the client has
	Hardware  lease.MAC
	Requested netip.Addr // zero: none
	Server    netip.Addr // zero: any
	ClientID  []byte
	Wanted    []byte // codes of options
	MaxSize   int    // 0: not said
}

// Parse reads a client's message.
func Parse(b []byte) (*Message, error) {
	switch {
	case len(b) < atOptions:
		return nil, fmt.Errorf("%d bytes, a message has at least %d", len(b), atOptions)
	case b[0] != opRequest || b[1] != ethernet || b[2] != byte(len(lease.MAC{})):
		return nil, fmt.Errorf("op %d, hardware %d of %d bytes: no request over Ethernet", b[0], b[1], b[2])
	case binary.BigEndian.Uint32(b[atCookie:]) != cookie:
		return nil, errors.New("no DHCP message: magic cookie missing")
	case [4]byte(b[atRelay:]) != [4]byte{}:
		return nil, errors.New("from a relay")
	}
	m := &Message{
		Transaction: [4]byte(b[atTransaction:]),
		Broadcast:   binary.BigEndian.Uint16(b[atFlags:])&flagBroadcast != 0,
		Client:      netip.AddrFrom4([4]byte(b[atClient:])),
		Hardware:    lease.MAC(b[atHardware:]),
	}
	if err := m.options(b[atOptions:]); err != nil {
		return nil, err
	}
	if m.Kind == 0 {
		return nil, errors.New("option 53 is missing")
	}
	return m, nil
}

// options reads those that count, the last of each. A client has no need of more room than
// the field has, so that options elsewhere are not looked for.
func (m *Message) options(b []byte) error {
	for len(b) > 0 && b[0] != optEnd {
		if b[0] == optPad {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return fmt.Errorf("option %d is cut off", b[0])
		}
		end := 2 + int(b[1])
		if err := m.option(b[0], b[2:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}

func (m *Message) option(code byte, value []byte) error {
	if size := fixedSize(code); size != 0 && len(value) != size {
		return fmt.Errorf("option %d has %d bytes instead of %d", code, len(value), size)
	}
	switch code {
	case optKind:
		m.Kind = Kind(value[0])
	case optRequested:
		m.Requested = netip.AddrFrom4([4]byte(value))
	case optServer:
		m.Server = netip.AddrFrom4([4]byte(value))
	case optMaxSize:
		m.MaxSize = int(binary.BigEndian.Uint16(value))
	case optClientID:
		m.ClientID = value
	case optWanted:
		m.Wanted = value
	}
	return nil
}

// fixedSize returns how many bytes an option has; 0: any number.
func fixedSize(code byte) int {
	switch code {
	case optKind:
		return 1
	case optMaxSize:
		return 2
	case optRequested, optServer:
		return 4
	}
	return 0
}
