package server

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/internal/safeopen"
)

// connectPatience is how long somebody else's socket may take to let a connection in:
// it does at once unless its backlog is full.
const connectPatience = 10 * time.Second

// connect reaches a socket that somebody else listens on. As with other files nobody
// else's link leads to it: who listens takes the connection for root's.
func (o *opener) connect(f *plan.File) (*os.File, error) {
	place, err := safeopen.Socket(f.Path)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	conn, err := net.DialTimeout("unix", linkTo(place), connectPatience)
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil, contract.Errorf("%s: connect: %w: nobody listens there: start what is to (for a TPM, swtpm)", contract.ObjectName(f.Path), unix.ECONNREFUSED)
		}
		return nil, contract.Errorf("%s: %w", contract.ObjectName(f.Path), err)
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ObjectName(f.Path), err)
	}
	o.own = append(o.own, file)
	return file, nil
}

// socket lets the VMM's user connect to it.
func (o *opener) socket(f *plan.File) (*os.File, error) {
	place, err := safeopen.Socket(f.Path)
	if err != nil {
		return nil, err
	}
	o.own = append(o.own, place)
	return place, grant(o.plan.User, place, o.lock, true, o.undo)
}
