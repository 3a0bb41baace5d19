package server

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/suites"
)

// TestConnectionsAreBounded: who may connect can't use up the shim's descriptors, nor
// the memory that each connection costs.
func TestConnectionsAreBounded(t *testing.T) {
	s := newScene(t, nil)
	conns := []*net.UnixConn{}
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	connect := func() *net.UnixConn {
		t.Helper()
		c, err := shim.DialSocket(s.ctx, s.options.RunDir, shim.SocketName)
		s.check(err)
		conns = append(conns, c)
		return c
	}
	for range maxConns - 1 { // the scene's agent has one
		connect()
	}
	over := connect()
	suites.Bound(t, over, patience)
	if n, err := over.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one more than %d connections: read %d, %v; want it closed", maxConns, n, err)
	}
	// Those that there are are served, and one that goes makes room.
	if s.launch() == 0 {
		t.Error("no VMM")
	}
	conns[0].Close()
	s.waitFor(func() bool {
		c, err := shim.Dial(s.ctx, s.options.RunDir)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}
