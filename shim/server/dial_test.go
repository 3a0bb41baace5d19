package server

import (
	"bufio"
	"io"
	"net"
	"testing"

	"github.com/vmlet/vmlet/shim"
)

// TestDial: the agent gets a connection that the shim has made.
func TestDial(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.check(err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			io.WriteString(conn, "welcome\n")
			conn.Close()
		}
	}()
	conn, err := s.client.Dial(s.ctx, shim.DialTo{Network: "tcp", Address: listener.Addr().String(), Within: patience})
	s.check(err)
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "welcome\n" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	s.check(err)
	defer packets.Close()
	datagrams, err := s.client.Dial(s.ctx, shim.DialTo{Network: "udp", Address: packets.LocalAddr().String(), Within: patience})
	s.check(err)
	defer datagrams.Close()
	for _, text := range []string{"one", "two"} {
		_, err := io.WriteString(datagrams, text)
		s.check(err)
		b := make([]byte, 16)
		n, _, err := packets.ReadFrom(b)
		if s.check(err); string(b[:n]) != text {
			t.Errorf("datagram %q, want %q", b[:n], text)
		}
	}
}

// TestDialRefused: what can't be dialled is told by its code.
func TestDialRefused(t *testing.T) {
	s := newScene(t, nil)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	s.check(err)
	closed.Close()
	nobody := closed.Addr().String()
	_, err = s.client.Dial(s.ctx, shim.DialTo{Network: "tcp", Address: nobody, Within: patience})
	wantCode(t, err, shim.CodePrecondition) // there is no VM
	s.launch()
	for _, c := range []struct {
		network, address string
		want             shim.Code
	}{
		{"tcp", nobody, shim.CodeUnavailable},
		{"unix", nobody, shim.CodeInvalid},
		{"tcp", "localhost:22", shim.CodeInvalid},
		{"tcp", "127.0.0.1", shim.CodeInvalid},
		{"tcp", "", shim.CodeInvalid},
	} {
		_, err := s.client.Dial(s.ctx, shim.DialTo{Network: c.network, Address: c.address, Within: patience})
		wantCode(t, err, c.want)
	}
}
