// Package filesocket hands one file from one container to another, as a descriptor over a
// unix socket: no mount is shared, and neither side needs a right. Inside of a pod only
// processes of the same user are served, and only such are believed: Serve and Receive. From
// pod to pod the node's agent carries the file: ServeToRoot and Take.
package filesocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/unixsocket"
)

const (
	// network keeps messages apart: a reply is one.
	network = "unixpacket"
	// maxReply bounds a reply's text, in bytes.
	maxReply = 4 << 10
	// given is the text that goes with a descriptor. Without one the text is a fault.
	given = "ok"
	// connectionTime bounds a connection that has begun.
	connectionTime = 10 * time.Second
	// retryInterval is how often a socket that is not there yet is looked for. There is no
	// inotify for it: the pods of a node share their user's few instances.
	retryInterval = 50 * time.Millisecond
	// maxConnections bounds those that are served at once.
	maxConnections = 16
)

// Fault is what the other side says that keeps it from handing the file out. It has no
// subject, as the other side doesn't know by what name it is known: "has no file /boot/vmlinuz".
type Fault struct{ Text string }

func (f *Fault) Error() string { return f.Text }

// Listen binds a socket at the path, which replaces what is there.
func Listen(path string) (*net.UnixListener, error) {
	temp := path + unixsocket.TempSuffix
	if len(temp) > unixsocket.MaxPath+len(unixsocket.TempSuffix) {
		return nil, fmt.Errorf("%s: a socket's path has at most %d bytes", path, unixsocket.MaxPath)
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: temp, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	// Where there is something at the path somebody listens.
	if err := os.Rename(temp, path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve hands out what open returns, or its error as a *Fault, to anyone who connects and is of
// this process's user. Each connection has the file opened again, so that locks and flags are
// the receiver's own. It returns nil when ctx ends; the listener is closed then.
func Serve(ctx context.Context, l *net.UnixListener, open func() (*os.File, error)) error {
	return serveUsers(ctx, l, open, os.Getuid())
}

// ServeToRoot is Serve, but root is served as well.
func ServeToRoot(ctx context.Context, l *net.UnixListener, open func() (*os.File, error)) error {
	return serveUsers(ctx, l, open, os.Getuid(), 0)
}

func serveUsers(ctx context.Context, l *net.UnixListener, open func() (*os.File, error), users ...int) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	free := make(chan struct{}, maxConnections)
	for {
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		free <- struct{}{}
		go func() {
			defer func() { conn.Close(); <-free }()
			_ = reply(conn, open, users) // who asks sees that nothing comes
		}()
	}
}

func reply(conn *net.UnixConn, open func() (*os.File, error), users []int) error {
	if err := errors.Join(conn.SetDeadline(time.Now().Add(connectionTime)), ofUsers(conn, users)); err != nil {
		return err
	}
	f, err := open()
	if err != nil {
		text := err.Error()
		_, err := conn.Write([]byte(text[:min(len(text), maxReply)]))
		return err
	}
	defer f.Close()
	var errWrite error
	err = unixsocket.WithDescriptors([]*os.File{f}, func(fds []int) {
		_, _, errWrite = conn.WriteMsgUnix([]byte(given), unix.UnixRights(fds...), nil)
	})
	return errors.Join(err, errWrite)
}

// ofUsers is an error if somebody else is at the other end.
func ofUsers(conn *net.UnixConn, users []int) error {
	peer, err := unixsocket.Peer(conn)
	if err != nil {
		return err
	}
	if !slices.Contains(users, int(peer.Uid)) {
		return fmt.Errorf("user %d is at the other end of the socket, and only %d is trusted", peer.Uid, users)
	}
	return nil
}

// Receive connects to a socket, for which it waits until ctx ends, and returns the file that
// it hands out: regular, open for reading only, and named after the socket. A *Fault is the
// other side's own word.
func Receive(ctx context.Context, path string) (*os.File, error) {
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := ofUsers(conn, []int{os.Getuid()}); err != nil {
		return nil, err
	}
	text, out := make([]byte, maxReply), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(text, out)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: no answer: %w", path, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: no answer: %w", path, err)
	}
	f, err := descriptor(out[:m], path)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, &Fault{Text: Printable(string(text[:n]))}
	}
	if err := check(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// dial waits for a socket that is not there yet, or whose listener is being replaced.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, network, path)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		// The dialer may see that ctx's time is over before ctx does.
		if ctx.Err() == nil && !os.IsTimeout(err) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, err
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

// descriptor returns the one file of a message, nil if it has none.
func descriptor(control []byte, name string) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	// There was room for one: the kernel has closed any others.
	return os.NewFile(uintptr(fds[0]), name), nil
}

func check(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	switch {
	case err != nil:
		return os.NewSyscallError("fcntl F_GETFL", err)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s hands out something that is no regular file (%v)", f.Name(), st.Mode())
	case flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_PATH != 0:
		return fmt.Errorf("%s hands out a file that is not open for reading only", f.Name())
	}
	return nil
}

// Printable is a text with '?' in the place of what a terminal or a log could take for something
// else: what other containers say, and names in their images, are shown to users.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
