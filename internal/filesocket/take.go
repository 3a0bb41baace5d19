package filesocket

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the descriptors that are taken, or still being closed, at once: of all pods, of those of one
// namespace, and of one pod. Each may cost a thread for as long as a file system does not answer.
const (
	maxTaken       = 64
	maxOfNamespace = 4
	maxOfPod       = 1
)

// Giver is the pod that hands a file out.
type Giver struct{ Namespace, UID string }

// Unfit is what is wrong with a file that was handed out; to ask for it again is no use.
type Unfit struct{ text string }

func (u *Unfit) Error() string { return u.text }

// Taker takes folders from processes that nobody trusts. What they hand out may be on a file
// system that does not answer, and must not make the taker wait for it, nor keep others' from being taken. The zero
// value is ready. Its methods may be called concurrently.
type Taker struct {
	mu    sync.Mutex
	taken map[Giver]int // being taken or closed
}

// begin takes one of the giver's places, or is an error. A place is given back by end.
func (t *Taker) begin(from Giver) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all, namespace int
	for g, n := range t.taken {
		if all += n; g.Namespace == from.Namespace {
			namespace += n
		}
	}
	const still = "of %s is still being taken, or closed as its file system does not answer"
	switch {
	case t.taken[from] >= maxOfPod:
		return fmt.Errorf("the last file "+still, "the pod")
	case namespace >= maxOfNamespace:
		return fmt.Errorf("each of the last %d files "+still, namespace, "pods of namespace "+from.Namespace)
	case all >= maxTaken:
		return fmt.Errorf("each of the last %d files "+still, all, "this node's pods")
	}
	if t.taken == nil {
		t.taken = make(map[Giver]int)
	}
	t.taken[from]++
	return nil
}

func (t *Taker) end(from Giver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[from]--; t.taken[from] == 0 {
		delete(t.taken, from)
	}
}

// Folder returns the folder that the other end of a connection hands out: a descriptor by which
// nothing is opened or read (O_PATH, open(2)), so that no call on it, nor its closing, waits for
// the folder's file system. It waits until ctx ends. The connection stays the caller's, and the
// file gets the name. A *Fault is the other side's own word, an *Unfit what is no such folder.
func (t *Taker) Folder(ctx context.Context, conn *net.UnixConn, from Giver, name string) (*os.File, error) {
	if err := t.begin(from); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
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
		t.dispose(fd, from)
		return nil, err
	}
	t.end(from)
	return os.NewFile(uintptr(fd), name), nil
}

// dispose closes what is not wanted; that may take for ever.
func (t *Taker) dispose(fd int, from Giver) {
	if fd < 0 {
		t.end(from)
		return
	}
	go func() {
		defer t.end(from)
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
		return &Unfit{name + " hands out a file that is open: want a folder with O_PATH"}
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return &os.PathError{Op: "statx", Path: name, Err: err}
	}
	if st.Mask&unix.STATX_TYPE == 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &Unfit{name + " hands out something that is no folder"}
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
