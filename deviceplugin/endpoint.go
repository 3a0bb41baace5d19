package deviceplugin

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmlet/vmlet/internal/resourcename"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Names of sockets in the kubelet's folder.
const (
	// KubeletSocket is the kubelet's own.
	KubeletSocket = "kubelet.sock"
	// ours are vmlet's: socketPrefix, what it is, a number of its own, socketSuffix.
	socketPrefix, socketSuffix = "vmlet-", ".sock"
	// maxSocketPath is what a socket's address holds (107 bytes and a NUL, unix(7)).
	maxSocketPath = 107
	// longestName is how long the name of one of our sockets may be.
	longestName = len(socketPrefix) + maxWord + 1 + 2*nameBytes + len(socketSuffix)
	maxWord     = 16
	nameBytes   = 4
)

// fileID tells whether a path still leads to the same socket. The time is that
// of its making: a file system may use an inode's number again at once.
type fileID struct {
	device, inode uint64
	made          unix.Timespec
}

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{device: uint64(st.Dev), inode: st.Ino, made: st.Mtim}, nil
}

// endpoint is one socket in the kubelet's folder, and who answers on it.
type endpoint struct {
	*service
	name, path string
	id         fileID
	server     *grpc.Server
	// served gets why nothing is answered any more, and is closed then.
	served chan error
}

// openEndpoint listens on a socket with a new name: that of another agent is
// never taken away, and the kubelet can't mix up two of one resource.
func openEndpoint(folder, resource string, s *service) (*endpoint, error) {
	e := &endpoint{service: s, name: socketName(resource), served: make(chan error, 1)}
	e.path = filepath.Join(folder, e.name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: e.path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// By then the path may lead to something else.
	l.SetUnlinkOnClose(false)
	if e.id, err = identify(e.path); err != nil {
		l.Close()
		return nil, err
	}
	// Without WaitForHandlers, Stop would return before the streams have ended.
	e.server = grpc.NewServer(grpc.WaitForHandlers(true))
	api.RegisterDevicePluginServer(e.server, s)
	go func() {
		e.served <- e.server.Serve(l)
		close(e.served)
	}()
	return e, nil
}

// socketName is short whatever the resource's name is, and of use to people.
func socketName(resource string) string {
	word := resourcename.Word(resource)
	if len(word) > maxWord {
		word = word[:maxWord]
	}
	var number [nameBytes]byte
	rand.Read(number[:]) // never fails
	return socketPrefix + word + "-" + hex.EncodeToString(number[:]) + socketSuffix
}

// there reports whether the path still leads to this socket.
func (e *endpoint) there() bool {
	id, err := identify(e.path)
	return err == nil && id == e.id
}

// closePatience is how long calls under way may take to end: they take
// microseconds, and an allocation that is broken off costs a pod its start.
const closePatience = 200 * time.Millisecond

// close ends the streams, lets calls under way end, and takes the socket away. It
// returns when nothing of it is left.
func (e *endpoint) close() {
	close(e.ending)
	if e.there() {
		os.Remove(e.path)
	}
	hurry := time.AfterFunc(closePatience, e.server.Stop)
	e.server.GracefulStop()
	if !hurry.Stop() {
		e.server.Stop() // returns when the one under way has
	}
	<-e.served
}

// sweep removes sockets of vmlet's that nobody listens on: an agent that was
// killed leaves them.
func sweep(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // none yet: the kubelet makes it
		return err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), socketPrefix) || !strings.HasSuffix(e.Name(), socketSuffix) {
			continue
		}
		path := filepath.Join(folder, e.Name())
		if err := dial(path); errors.Is(err, unix.ECONNREFUSED) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// dial connects to a socket and leaves again.
func dial(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// CheckFolder says why no sockets can be in a folder.
func CheckFolder(folder string) error {
	if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
		return fmt.Errorf("the kubelet's folder for device plugins: %q is not an absolute, clean path", folder)
	}
	if longest := len(folder) + 1 + longestName; longest > maxSocketPath {
		return fmt.Errorf("the kubelet's folder for device plugins: %q is too long: a socket's path there would have up to %d bytes, and %d fit",
			folder, longest, maxSocketPath)
	}
	return nil
}
