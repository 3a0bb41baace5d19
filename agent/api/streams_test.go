package api

import (
	"errors"
	"io"
	"net"
	"testing"
)

// halfCloser is a connection of which the one direction can be ended.
type halfCloser struct {
	net.Conn
	closed bool
}

func (h *halfCloser) CloseWrite() error {
	h.closed = true
	return nil
}

// TestPassOnEnds: the guest hears that its peer has said all, and not that the stream broke off.
func TestPassOnEnds(t *testing.T) {
	for _, end := range []error{io.EOF, errors.New("broken off")} {
		conn := new(halfCloser)
		passOn(conn, nil, func() ([]byte, error) { return nil, end })
		if want := end == io.EOF; conn.closed != want {
			t.Errorf("%v: half closed is %t, want %t", end, conn.closed, want)
		}
	}
}
