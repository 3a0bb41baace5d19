package server

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vmlet/vmlet/lease/internal/dhcp6"
	"github.com/vmlet/vmlet/lease/internal/ndp"
	"github.com/vmlet/vmlet/lease/internal/packet"
)

// The first advertisements come fast (RFC 4861): a guest that goes on from an image does
// not ask. The very first may be lost, as a bridge takes a moment to find its new port up.
const (
	firstAdvertisements = 3
	firstInterval       = 4 * time.Second
)

// answerV6 returns nil where no answer is due.
func (s *Server) answerV6(b []byte) []byte {
	p, ok := packet.Parse(b)
	switch {
	case !ok || !p.From.Is6():
		return nil
	case ndp.IsSolicitation(p):
		s.note(slog.LevelDebug, "router advertisement", "to", p.From)
		if p.From.IsUnspecified() {
			return s.advertisement(ndp.AllNodes())
		}
		return s.advertisement(p.From)
	case p.Protocol != packet.UDP || p.ToPort != dhcp6.ServerPort || !p.From.IsLinkLocalUnicast():
		return nil
	}
	m, err := dhcp6.Parse(p.Payload)
	if err != nil {
		s.note(slog.LevelInfo, "malformed DHCPv6 message from the guest", "error", err)
		return nil
	}
	if m.Kind == dhcp6.Decline {
		s.note(slog.LevelWarn, "the guest declines its address: another on its network has it", "address", s.c.V6.Address.Addr())
	}
	answer := s.dhcp6.Answer(m)
	if answer == nil {
		return nil
	}
	if len(answer.LeftOut) > 0 {
		s.note(slog.LevelWarn, "DHCPv6 options left out: there is no room for them", "options", answer.LeftOut)
	}
	level := slog.LevelDebug
	if answer.Kind == dhcp6.Reply {
		level = slog.LevelInfo // the others lead to it
	}
	s.note(level, "the guest asked for its network by DHCPv6", "asked", m.Kind, "answered", answer.Kind, "to", p.From)
	return packet.Datagram(netip.AddrPortFrom(s.c.V6.Router, dhcp6.ServerPort), netip.AddrPortFrom(p.From, dhcp6.ClientPort), answer.Payload)
}

func (s *Server) advertisement(to netip.Addr) []byte {
	return packet.Control(s.c.V6.Router, to, ndp.Advertisement(s.c))
}

// advertise tells the guest its router, unasked.
func (s *Server) advertise() {
	for n := 1; ; n++ {
		if err := s.v6.write(s.advertisement(ndp.AllNodes())); err != nil && s.life.Err() == nil {
			s.note(slog.LevelWarn, "failed to send the guest a router advertisement", "error", err)
		}
		wait := firstInterval
		if n >= firstAdvertisements {
			wait = ndp.MinInterval + rand.N(ndp.MaxInterval-ndp.MinInterval)
		}
		select {
		case <-time.After(wait):
		case <-s.life.Done():
			return
		}
	}
}
