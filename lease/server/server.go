// Package server answers a guest's DHCPv4 and DHCPv6 requests and router solicitations on
// sockets that it is given. It has no rights of its own and trusts nothing that the guest
// says. Start with New.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/time/rate"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/internal/dhcp4"
	"github.com/vmlet/vmlet/lease/internal/dhcp6"
)

// Bounds on what a guest can make of this.
const (
	// questionRate is how many packets a second are read of each family, after a burst.
	// The sockets keep some more, and drop the rest.
	questionRate  = 10
	questionBurst = 30
	// logRate is how many lines a second the guest's packets may cause, after a burst.
	logRate  = 0.1
	logBurst = 10
)

// Server answers one guest on one interface.
type Server struct {
	c    *lease.Config
	log  *slog.Logger
	said *rate.Limiter
	life context.Context
	end  context.CancelFunc

	v4, v6 *socket // nil: nothing is answered there
	dhcp4  *dhcp4.Responder
	dhcp6  *dhcp6.Responder
	port   *os.File
}

// New makes a server of a configuration, which it keeps, and of sockets, which stay the
// caller's.
func New(s lease.Sockets, c *lease.Config, log *slog.Logger) (_ *Server, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	server := &Server{c: c, log: log, said: rate.NewLimiter(logRate, logBurst)}
	server.life, server.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			server.Close()
		}
	}()
	if c.V4 != nil {
		server.dhcp4 = dhcp4.NewResponder(c)
		if server.v4, err = newSocket(s.IPv4, c.MAC, ethertypeIPv4); err != nil {
			return nil, fmt.Errorf("socket for IPv4: %w", err)
		}
		port, err := duplicate(s.Port)
		if err != nil {
			return nil, fmt.Errorf("socket of DHCP's port: %w", err)
		}
		server.port = os.NewFile(uintptr(port), s.Port.Name())
	}
	if c.V6 != nil {
		server.dhcp6 = dhcp6.NewResponder(c)
		if server.v6, err = newSocket(s.IPv6, c.MAC, ethertypeIPv6); err != nil {
			return nil, fmt.Errorf("socket for IPv6: %w", err)
		}
	}
	return server, nil
}

// Close ends Serve.
func (s *Server) Close() {
	s.end()
	s.v4.close()
	s.v6.close()
	if s.port != nil {
		s.port.Close()
	}
}

// Serve answers until ctx ends or the server is closed. What fails is logged: a guest goes
// on with what it has.
func (s *Server) Serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	var families sync.WaitGroup
	if s.v4 != nil {
		families.Go(func() { s.answer(s.v4, "IPv4", s.answerV4) })
	}
	if s.v6 != nil {
		families.Go(func() { s.answer(s.v6, "IPv6", s.answerV6) })
		families.Go(s.advertise)
	}
	families.Wait()
	s.Close()
}

// answer reads what the guest asks, no faster than it has reason to.
func (s *Server) answer(from *socket, family string, answer func(packet []byte) []byte) {
	pace := rate.NewLimiter(questionRate, questionBurst)
	b := make([]byte, maxPacket)
	for pace.Wait(s.life) == nil {
		n, err := from.read(b)
		if s.life.Err() != nil {
			return
		}
		if err != nil {
			s.note(slog.LevelWarn, "failed to read the guest's network requests", "family", family, "error", err)
			continue
		}
		reply := s.survive(answer, b[:n])
		if reply == nil {
			continue
		}
		if err := from.write(reply); err != nil && s.life.Err() == nil {
			s.note(slog.LevelWarn, "failed to answer the guest's network request", "family", family, "error", err)
		}
	}
}

// survive answers one question. A fault in that costs the guest its answer, and not its
// life: the VMM ends with this process.
func (s *Server) survive(answer func(packet []byte) []byte, b []byte) (reply []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			s.note(slog.LevelError, "panic while answering the guest's network request", "panic", fault, "stack", string(debug.Stack()))
		}
	}()
	return answer(b)
}

// note logs what a guest can cause as often as it likes.
func (s *Server) note(level slog.Level, message string, attributes ...any) {
	ctx := context.Background()
	if s.log.Enabled(ctx, level) && s.said.Allow() {
		s.log.Log(ctx, level, message, attributes...)
	}
}
