package kind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"syscall"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/internal/inotify"
	"golang.org/x/sys/unix"
)

// Socket is a service of the node's that containers reach by a socket: they are
// given its folder, so that they reach it again after it was restarted.
type Socket struct {
	resource string
	path     string
	// count is asked only when the socket is there.
	count func() int
	grant deviceplugin.Grant
	probe probe
}

// NewSocket offers the socket with this path, as many times as count says. cdi,
// if not empty, is the name of the device that is given in place of its folder.
func NewSocket(resource, path string, count func() int, cdi string) *Socket {
	s := &Socket{resource: resource, path: path, count: count, probe: probe{open: connect}}
	if cdi != "" {
		s.grant.CDI = []string{cdi}
	} else {
		s.grant.Folders = []string{filepath.Dir(path)}
	}
	return s
}

// Resource is what pods ask for.
func (s *Socket) Resource() string { return s.resource }

// Interests are the socket and the way to it.
func (s *Socket) Interests() []inotify.Interest { return []inotify.Interest{{Path: s.path}} }

// Find connects to the socket.
func (s *Socket) Find(ctx context.Context) []deviceplugin.Device {
	there, obstacle := s.probe.try(ctx, s.path)
	if !there {
		return nil
	}
	return repeat(s.resource, s.count(), obstacle, &s.grant)
}

// connect connects to a socket and leaves again.
func connect(path string) (there bool, obstacle string) {
	c, err := net.Dial("unix", path)
	var errno syscall.Errno
	switch {
	case err == nil:
		c.Close()
		return true, ""
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return false, ""
	case errors.Is(err, unix.EAGAIN): // somebody listens, and has enough to do
		return true, ""
	case errors.Is(err, unix.ECONNREFUSED):
		return true, fmt.Sprintf("nobody listens on %s: start the service that it belongs to", path)
	case errors.As(err, &errno):
		return true, fmt.Sprintf("%s: %v (%s)", path, errno, unix.ErrnoName(errno))
	}
	return true, err.Error()
}
