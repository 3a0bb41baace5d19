// Package rundir reaches the files of one folder through its descriptor: paths
// of sockets may be longer than a socket's address holds (108 bytes, unix(7)),
// and nothing in the folder can lead out of it.
package rundir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// Dir is an open folder. Its methods may be called concurrently until Close.
// The path is for messages only: what happens to it later does not matter.
type Dir struct {
	file *os.File
	path string
}

// Open opens a folder.
func Open(path string) (*Dir, error) {
	fd, err := interrupted.RetryInt(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open folder", Path: path, Err: err}
	}
	return &Dir{os.NewFile(uintptr(fd), path), path}, nil
}

// Close closes the folder.
func (d *Dir) Close() error { return d.file.Close() }

// Path returns a file's path, for messages.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// procPath is the folder's, or one of its files', through this process's descriptor.
func (d *Dir) procPath(name string) string { return procPath(d.file, name) }

func procPath(f *os.File, name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())), name)
}

// CheckName refuses what is not the name of one file in a folder.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 64 || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a file name of at most 64 bytes without slashes: %w", name, os.ErrInvalid)
	}
	return nil
}

// OpenFile opens a file of the folder, without following symbolic links.
func (d *Dir) OpenFile(name string, flags int, mode uint32) (*os.File, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	how := &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Mode:    uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := interrupted.RetryInt(func() (int, error) { return unix.Openat2(int(d.file.Fd()), name, how) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.Path(name), Err: err}
	}
	return os.NewFile(uintptr(fd), d.Path(name)), nil
}

// firstRead is how many bytes of a file are read at first: as a rule it has fewer.
const firstRead = 8 << 10

// ReadFile reads a file of at most limit bytes, which costs memory as the file's size
// does.
func (d *Dir) ReadFile(name string, limit int) ([]byte, error) {
	f, err := d.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, min(firstRead, limit+1))
	for n := 0; n <= limit; {
		if n == len(b) {
			b = append(b, make([]byte, min(len(b), limit+1-n))...)
		}
		m, err := interrupted.RetryInt(func() (int, error) { return unix.Pread(int(f.Fd()), b[n:], int64(n)) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: d.Path(name), Err: err}
		}
		if m == 0 {
			return b[:n], nil
		}
		n += m
	}
	return nil, contract.Errorf("%s: more than %d bytes", contract.ObjectName(d.Path(name)), limit)
}

// WriteFile replaces a file: whole or not at all, also after a power failure.
func (d *Dir) WriteFile(name string, content []byte, mode uint32) error {
	return d.WriteFrom(name, bytes.NewReader(content), mode, func(*os.File) error { return nil })
}

// WriteFrom is WriteFile with content that is read from somewhere; prepare is
// called with the file before it gets its name.
func (d *Dir) WriteFrom(name string, content io.Reader, mode uint32, prepare func(*os.File) error) (err error) {
	temp := "." + name + ".tmp"
	if err := d.Remove(temp); err != nil {
		return err
	}
	f, err := d.OpenFile(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			err = errors.Join(err, d.Remove(temp))
		}
	}()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	if err := prepare(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := d.rename(temp, name); err != nil {
		return err
	}
	return d.file.Sync()
}

// Rename gives a file another name in the folder.
func (d *Dir) Rename(from, to string) error {
	if err := errors.Join(CheckName(from), CheckName(to)); err != nil {
		return err
	}
	return d.rename(from, to)
}

func (d *Dir) rename(from, to string) error {
	dir := int(d.file.Fd())
	if err := interrupted.Retry(func() error { return unix.Renameat(dir, from, dir, to) }); err != nil {
		return &os.PathError{Op: "rename", Path: d.Path(from), Err: err}
	}
	return nil
}

// Remove unlinks a file; that there is none is no error.
func (d *Dir) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := interrupted.Retry(func() error { return unix.Unlinkat(int(d.file.Fd()), name, 0) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: d.Path(name), Err: err}
	}
	return nil
}

// Listen binds a stream socket of mode 0600 and listens on it. What has the
// name already is replaced: it is left over from an earlier run. The name appears
// when the socket can be connected to: a client that learns the name by inotify connects
// at once.
func (d *Dir) Listen(name string) (*os.File, error) {
	temp := "." + name + ".new"
	if err := errors.Join(CheckName(name), d.Remove(temp)); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), d.Path(name))
	// The file gets the mode that the socket has when it is bound (unix_bind
	// in net/unix/af_unix.c), so that at no time others can connect.
	err = unix.Fchmod(fd, 0o600)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: d.procPath(temp)})
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err == nil {
		err = d.Rename(temp, name)
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "listen", Path: d.Path(name), Err: err}
	}
	return f, nil
}

// ListenHere is Listen for this process itself. The name stays when it is closed.
func (d *Dir) ListenHere(name string) (*net.UnixListener, error) {
	file, err := d.Listen(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// Dial connects to a stream socket in the folder.
func (d *Dir) Dial(ctx context.Context, name string) (*net.UnixConn, error) {
	f, err := d.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Of anything else connect(2) says that nobody listens.
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: d.Path(name), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, &os.PathError{Op: "connect", Path: d.Path(name), Err: unix.ENOTSOCK}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", procPath(f, ""))
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ObjectName(d.Path(name)), err)
	}
	return conn.(*net.UnixConn), nil
}
