// Package dhcp6 reads what a DHCPv6 client asks and makes the answers (RFC 8415).
package dhcp6

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Ports of server and client.
const (
	ServerPort = 547
	ClientPort = 546
)

// Kind of a message.
type Kind byte

const (
	Solicit            Kind = 1
	Advertise          Kind = 2
	Request            Kind = 3
	Confirm            Kind = 4
	Renew              Kind = 5
	Rebind             Kind = 6
	Reply              Kind = 7
	Release            Kind = 8
	Decline            Kind = 9
	InformationRequest Kind = 11
)

func (k Kind) String() string {
	names := [...]string{"", "solicit", "advertise", "request", "confirm", "renew", "rebind", "reply", "release", "decline", "reconfigure", "information-request"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprint(byte(k))
}

// Options that are read or written.
const (
	optClientID    = 1
	optServerID    = 2
	optIANA        = 3
	optAddress     = 5
	optWanted      = 6
	optPreference  = 7
	optStatus      = 13
	optRapidCommit = 14
	optNameservers = 23
	optSearch      = 24
	optBootFileURL = 59
)

const (
	headerSize  = 4 // kind and transaction
	ianaSize    = 12
	addressSize = 24
	maxDUID     = 130

	// maxIANAs and maxAddresses are how many of them are looked at: a client has one.
	maxIANAs     = 4
	maxAddresses = 4
)

// Message is what counts of a client's message. Its slices are parts of the message.
type Message struct {
	Kind        Kind
	Transaction [3]byte
	ClientID    []byte
	ServerID    []byte
	IANAs       []IANA
	Wanted      []byte // two bytes each
	RapidCommit bool
}

// IANA is a request for addresses.
type IANA struct {
	ID        [4]byte
	Addresses []netip.Addr
}

// Parse reads a client's message.
func Parse(b []byte) (*Message, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("%d bytes, a message has at least %d", len(b), headerSize)
	}
	m := &Message{Kind: Kind(b[0]), Transaction: [3]byte(b[1:])}
	if err := eachOption(b[headerSize:], m.option); err != nil {
		return nil, err
	}
	return m, nil
}

// eachOption calls a function for each option in turn.
func eachOption(b []byte, found func(code uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return errors.New("an option is cut off")
		}
		code, end := binary.BigEndian.Uint16(b), 4+int(binary.BigEndian.Uint16(b[2:]))
		if end > len(b) {
			return fmt.Errorf("option %d is cut off", code)
		}
		if err := found(code, b[4:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}

func (m *Message) option(code uint16, value []byte) error {
	switch code {
	case optClientID, optServerID:
		if len(value) == 0 || len(value) > maxDUID {
			return fmt.Errorf("option %d has %d bytes, 1 to %d are allowed", code, len(value), maxDUID)
		}
		if code == optClientID {
			m.ClientID = value
		} else {
			m.ServerID = value
		}
	case optIANA:
		if len(value) < ianaSize {
			return fmt.Errorf("option %d has %d bytes, at least %d belong to it", code, len(value), ianaSize)
		}
		if len(m.IANAs) == maxIANAs {
			return nil
		}
		i := IANA{ID: [4]byte(value)}
		if err := eachOption(value[ianaSize:], i.option); err != nil {
			return err
		}
		m.IANAs = append(m.IANAs, i)
	case optWanted:
		m.Wanted = value
	case optRapidCommit:
		m.RapidCommit = true
	}
	return nil
}

func (i *IANA) option(code uint16, value []byte) error {
	if code != optAddress || len(i.Addresses) == maxAddresses {
		return nil
	}
	if len(value) < addressSize {
		return fmt.Errorf("option %d has %d bytes, at least %d belong to it", code, len(value), addressSize)
	}
	i.Addresses = append(i.Addresses, netip.AddrFrom16([16]byte(value)))
	return nil
}

// wants tells whether the client asks for an option.
func (m *Message) wants(code uint16) bool {
	for b := m.Wanted; len(b) >= 2; b = b[2:] {
		if binary.BigEndian.Uint16(b) == code {
			return true
		}
	}
	return false
}
