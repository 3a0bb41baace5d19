package server

import (
	"log/slog"
	"net/netip"

	"github.com/vmlet/vmlet/lease/internal/dhcp4"
	"github.com/vmlet/vmlet/lease/internal/packet"
)

// answerV4 returns nil where no answer is due.
func (s *Server) answerV4(b []byte) []byte {
	p, ok := packet.Parse(b)
	if !ok || !p.From.Is4() || p.Protocol != packet.UDP || p.ToPort != dhcp4.ServerPort {
		return nil
	}
	m, err := dhcp4.Parse(p.Payload)
	if err != nil {
		s.note(slog.LevelInfo, "malformed DHCP message from the guest", "error", err)
		return nil
	}
	if m.Kind == dhcp4.Decline {
		s.note(slog.LevelWarn, "the guest declines its address: another on its network has it", "address", s.c.V4.Address.Addr())
	}
	answer := s.dhcp4.Answer(m)
	if answer == nil {
		return nil
	}
	if len(answer.LeftOut) > 0 {
		s.note(slog.LevelWarn, "DHCP options left out: the guest has no room for them", "options", answer.LeftOut)
	}
	level := slog.LevelDebug
	if answer.Kind == dhcp4.Ack {
		level = slog.LevelInfo // the others lead to it
	}
	s.note(level, "the guest asked for its network by DHCP", "asked", m.Kind, "answered", answer.Kind, "to", answer.To)
	return packet.Datagram(netip.AddrPortFrom(s.c.V4.Server, dhcp4.ServerPort), netip.AddrPortFrom(answer.To, dhcp4.ClientPort), answer.Payload)
}
