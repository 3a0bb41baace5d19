package server

import (
	"context"
	"io"
	"net"
	"os"
	"testing"

	"github.com/vmlet/vmlet/shim"
)

// AddDisplay keeps the client for the test.
func (m *fakeMachine) AddDisplay(_ context.Context, client *os.File) error {
	conn, err := net.FileConn(client)
	if err != nil {
		return err
	}
	m.displays <- conn
	return nil
}

// attachDisplay returns both ends of one client's display.
func (s *scene) attachDisplay(keep bool) (client, vmm net.Conn) {
	s.t.Helper()
	client, err := s.client.Display(s.ctx, keep)
	s.check(err)
	s.t.Cleanup(func() { client.Close() })
	vmm = <-s.machine.displays
	s.t.Cleanup(func() { vmm.Close() })
	return client, vmm
}

// says checks that what is written at one end is read at the other.
func (s *scene) says(from, to net.Conn, word string) {
	s.t.Helper()
	_, err := io.WriteString(from, word)
	s.check(err)
	got := make([]byte, len(word))
	_, err = io.ReadFull(to, got)
	s.check(err)
	if string(got) != word {
		s.t.Fatalf("%q came, want %q", got, word)
	}
}

func (s *scene) cutOff(conn net.Conn, who string) {
	s.t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		s.t.Errorf("%s is not cut off", who)
	}
}

// TestDisplay: bytes go both ways, a second client takes over unless it is to leave the first
// alone, and either end's end is the other's.
func TestDisplay(t *testing.T) {
	s := newScene(t, nil)
	_, err := s.client.Display(s.ctx, false)
	wantCode(t, err, shim.CodePrecondition) // there is no VMM
	s.launch()

	client, vmm := s.attachDisplay(true)
	s.says(client, vmm, "keys")
	s.says(vmm, client, "pixels")
	_, err = s.client.Display(s.ctx, true)
	wantCode(t, err, shim.CodeBusy)
	s.says(vmm, client, "still there")

	second, secondVMM := s.attachDisplay(false)
	s.cutOff(client, "the first client")
	s.cutOff(vmm, "the VMM's end of the first client")
	s.says(secondVMM, second, "pixels")

	second.Close()
	s.cutOff(secondVMM, "the VMM's end of a client that has gone")
	third, thirdVMM := s.attachDisplay(false)
	thirdVMM.Close()
	s.cutOff(third, "a client that the VMM has cut off")
	// Nobody has it now.
	s.waitFor(func() bool {
		client, err := s.client.Display(s.ctx, true)
		if err != nil {
			return false
		}
		client.Close()
		return true
	})

	last, _ := s.attachDisplay(false)
	_, err = s.client.Kill(s.ctx)
	s.check(err)
	s.cutOff(last, "a client of a VMM that has ended")
}
