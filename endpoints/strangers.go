package endpoints

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Strangers bounds the connections of a listener whose callers have not shown who they are. One
// more takes the place of the oldest one of the address that has the most: a caller that opens
// many is in its own way, and a new caller is always heard.
func Strangers(l net.Listener, most int) net.Listener { return &strangers{Listener: l, most: most} }

type strangers struct {
	net.Listener
	most int

	mu  sync.Mutex
	all []*strangersConn // the oldest first
}

type strangersConn struct {
	net.Conn
	of *strangers
}

// Accept never waits for others' connections to end.
func (s *strangers) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &strangersConn{Conn: c, of: s}
	s.mu.Lock()
	s.all = append(s.all, one)
	over := s.over()
	s.mu.Unlock()
	if over != nil {
		over.Close()
	}
	return one, nil
}

// over returns the connection that is one too many; nil: none is. The lock is held.
func (s *strangers) over() *strangersConn {
	if len(s.all) <= s.most {
		return nil
	}
	return s.all[OneTooMany(s.all)]
}

// OneTooMany is which of some connections, the oldest first, has to go for another one: the oldest of the address that
// has the most.
func OneTooMany[C net.Conn](all []C) int {
	count := make(map[string]int)
	var worst int
	for _, one := range all {
		count[address(one)]++
		worst = max(worst, count[address(one)])
	}
	return slices.IndexFunc(all, func(one C) bool { return count[address(one)] == worst })
}

// address is where a connection comes from.
func address(c net.Conn) string {
	if address, _, err := net.SplitHostPort(c.RemoteAddr().String()); err == nil {
		return address
	}
	return c.RemoteAddr().String()
}

func (s *strangers) forget(c *strangersConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := slices.Index(s.all, c); n >= 0 {
		s.all = slices.Delete(s.all, n, n+1)
	}
}

// Close ends the connection and gives up its place.
func (c *strangersConn) Close() error {
	c.of.forget(c)
	return c.Conn.Close()
}

type connectionKey struct{}

// KeepConnection is a server's ConnContext, for Known.
func KeepConnection(ctx context.Context, c net.Conn) context.Context {
	if under, is := c.(interface{ NetConn() net.Conn }); is { // of TLS
		c = under.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// Known says that who sent a request has shown who he is: its connection is no stranger's from now
// on.
func Known(ctx context.Context) {
	if c, is := ctx.Value(connectionKey{}).(*strangersConn); is {
		c.of.forget(c)
	}
}
