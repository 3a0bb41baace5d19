package filesocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// maxTaken bounds the descriptors that are taken, or still being closed, at once.
const maxTaken = 16

// Taker takes folders from processes that nobody trusts. What they hand out may be on a file
// system that does not answer, and must not make the taker wait for it. Its methods may be
// called concurrently.
type Taker struct{ free *semaphore.Weighted }

// NewTaker returns one.
func NewTaker() *Taker { return &Taker{semaphore.NewWeighted(maxTaken)} }

// Folder returns the folder that the other end of a connection hands out: a descriptor by which
// nothing is opened or read (O_PATH, open(2)), so that no call on it, nor its closing, waits for
// the folder's file system. It waits until ctx ends. The connection stays the caller's, and the
// file gets the name. A *Fault is the other side's own word.
func (t *Taker) Folder(ctx context.Context, conn *net.UnixConn, name string) (*os.File, error) {
	if !t.free.TryAcquire(1) {
		return nil, fmt.Errorf("%s: the last %d files that were handed out are still being closed, as their file systems do not answer", name, maxTaken)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	text, control := make([]byte, maxReply), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(text, control)
	fd := -1
	if err == nil {
		fd, err = oneDescriptor(control[:m])
	}
	switch {
	case err == nil && fd < 0:
		err = &Fault{Text: Printable(string(text[:n]))}
	case err == nil:
		err = checkFolder(fd, name)
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: no answer: %w", name, context.Cause(ctx))
	default:
		err = fmt.Errorf("%s: no answer: %w", name, err)
	}
	if err != nil {
		t.dispose(fd)
		return nil, err
	}
	t.free.Release(1)
	return os.NewFile(uintptr(fd), name), nil
}

// dispose closes what is not wanted; that may take for ever.
func (t *Taker) dispose(fd int) {
	if fd < 0 {
		t.free.Release(1)
		return
	}
	go func() {
		defer t.free.Release(1)
		_ = unix.Close(fd) // of a file that nothing was written to
	}()
}

// oneDescriptor is -1 if the message has none. There was room for one: the kernel has closed
// any others.
func oneDescriptor(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return -1, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return -1, err
	}
	return fds[0], nil
}

// checkFolder asks only what the kernel knows by itself.
func checkFolder(fd int, name string) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return os.NewSyscallError("fcntl F_GETFL", err)
	}
	if flags&unix.O_PATH == 0 {
		return fmt.Errorf("%s hands out a file that is open: want a folder with O_PATH", name)
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return &os.PathError{Op: "statx", Path: name, Err: err}
	}
	if st.Mask&unix.STATX_TYPE == 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New(name + " hands out something that is no folder")
	}
	return nil
}

// OpenFolder opens a folder so that it can be handed to a Taker.
func OpenFolder(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// DialIn connects to a socket of a folder, by its name alone. No link is followed, as somebody
// hostile may be able to write to the folder.
func DialIn(ctx context.Context, folder, name string) (*net.UnixConn, error) {
	dir, err := OpenFolder(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	path := folder + "/" + name
	fd, err := unix.Openat2(int(dir.Fd()), name, how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	socket := os.NewFile(uintptr(fd), path)
	defer socket.Close()
	if st, err := socket.Stat(); err != nil {
		return nil, err
	} else if st.Mode()&os.ModeSocket == 0 {
		return nil, &os.PathError{Op: "connect", Path: path, Err: unix.ENOTSOCK}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conn.(*net.UnixConn), nil
}
