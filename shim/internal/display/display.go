// Package display gives a guest's display to one client at a time. The VMM is handed one
// end of a socket for each, so that no socket of the display is in the file system; the
// bytes pass through here, so that a client can be cut off for another one.
package display

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/vmlet/vmlet/internal/unixsocket"
)

// ErrInUse means that another client has the display.
var ErrInUse = errors.New("another client has the display")

// bufferSize is how many bytes are on their way from the guest to its client; those the
// other way are keys and a pointer.
const (
	bufferSize = 32 << 10
	inputSize  = 4 << 10
)

// Display is one guest's. Its methods may be called concurrently. The zero value is ready.
type Display struct {
	turn sync.Mutex // held by who attaches

	mu      sync.Mutex
	current *session
}

// session is one client's.
type session struct{ vmm, client net.Conn }

func (s *session) end() {
	s.vmm.Close()
	s.client.Close()
}

// Attach returns a client's end of a stream, which is the caller's. hand passes the VMM's
// end on to it. The client before is cut off when the VMM has the new one; with keep it is
// not, and the error is ErrInUse.
func (d *Display) Attach(keep bool, hand func(vmm *os.File) error) (*os.File, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if keep && d.inUse() {
		return nil, ErrInUse
	}
	vmm, passed, err := unixsocket.Pair("display")
	if err != nil {
		return nil, err
	}
	defer passed.Close()
	client, other, err := unixsocket.Pair("display")
	if err != nil {
		vmm.Close()
		return nil, err
	}
	s := &session{vmm: vmm, client: client}
	if err := hand(passed); err != nil {
		s.end()
		other.Close()
		return nil, err
	}
	d.replace(s)
	go d.relay(s)
	return other, nil
}

func (d *Display) inUse() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current != nil
}

func (d *Display) replace(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.end()
	}
	d.current = s
}

// relay ends when either side does, and takes the other with it.
func (d *Display) relay(s *session) {
	go func() {
		defer s.end()
		_, _ = io.CopyBuffer(only{s.vmm}, only{s.client}, make([]byte, inputSize))
	}()
	_, _ = io.CopyBuffer(only{s.client}, only{s.vmm}, make([]byte, bufferSize)) // its end is the session's
	s.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == s {
		d.current = nil
	}
}

// only hides what else a connection can do: io.CopyBuffer would take buffers of its own.
type only struct{ io.ReadWriter }

// Close cuts the client off.
func (d *Display) Close() { d.replace(nil) }
