package endpoints

import (
	"context"
	"net"
	"testing"
)

// pipes is a listener of connections from given addresses.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.TCPAddr{} }

type from struct {
	net.Conn
	address string
	closed  bool
}

func (f *from) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1}
}

func (f *from) Close() error {
	f.closed = true
	return nil
}

// TestStrangersMakeRoom: whoever opens many connections loses his own, a new caller is always
// heard, and one that is known keeps his.
func TestStrangersMakeRoom(t *testing.T) {
	in := make(pipes, 1)
	l := Strangers(in, 3)
	accept := func(address string) (*from, net.Conn) {
		t.Helper()
		raw := &from{address: address}
		in <- raw
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return raw, c
	}
	closed := func(what string, want bool, all ...*from) {
		t.Helper()
		for n, c := range all {
			if c.closed != want {
				t.Errorf("%s: connection %d of %s is closed: %v, want %v", what, n, c.address, c.closed, want)
			}
		}
	}
	server, _ := accept("10.0.0.1")
	first, _ := accept("10.0.0.2")
	second, _ := accept("10.0.0.2")
	closed("as many as there is room for", false, server, first, second)
	third, _ := accept("10.0.0.2")
	closed("one more of the same address", true, first)
	closed("one more of the same address", false, server, second, third)
	other, c := accept("10.0.0.3")
	closed("one of another address", true, second)
	closed("one of another address", false, server, third, other)
	Known(KeepConnection(t.Context(), c))
	fourth, last := accept("10.0.0.3")
	closed("beside one that is known", false, server, third, other, fourth)
	if last.Close(); !fourth.closed {
		t.Error("a connection that is closed is left open")
	}
	fifth, _ := accept("10.0.0.3")
	closed("after one has ended", false, server, third, other, fifth)
	for range 5 {
		accept("10.0.0.4")
	}
	closed("among many others", false, other)
	Known(context.Background()) // no connection of this listener
}
