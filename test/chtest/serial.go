package chtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// console is one of a VM's: where the guest writes to, and is typed to from.
type console struct {
	out   io.Writer
	keys  chan byte // what was typed; closed by nobody
	close func()
}

// keyBuffer is how many characters wait for the guest.
const keyBuffer = 256

// openConsole makes a console as its mode says. A terminal's path is put into the
// configuration.
func openConsole(t tree, f *fence, own *terminal) (*console, error) {
	var c consoleConfig
	if err := convert(t, &c); err != nil {
		return nil, err
	}
	k := &console{out: io.Discard, keys: make(chan byte, keyBuffer), close: func() {}}
	switch c.Mode {
	case "Tty":
		k.out, k.keys = own.out, own.open()
	case "File":
		if c.File == "" {
			return nil, errPanic
		}
		file, err := f.open(c.File, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, err
		}
		k.out, k.close = file, func() { file.Close() }
	case "Socket":
		if c.Socket == "" {
			return nil, errPanic
		}
		return k, k.socket(c.Socket, f)
	case "Pty":
		path, err := k.pair(f)
		t["file"] = path
		return k, err
	}
	return k, nil
}

// errPanic is a configuration over which the real one panics, which ends it.
var errPanic = errors.New("the VMM panicked")

// socket listens, and serves whoever came last. What is written while nobody is
// there is kept, 1 MiB of it, and sent to the next. As with the real one, somebody
// who goes and leaves something unread is the last who is served.
func (k *console) socket(path string, f *fence) error {
	if err := f.allows(filepath.Dir(path), "w"); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	b := &backlog{}
	k.out = b
	closed := make(chan struct{})
	go k.serve(listener, b, closed)
	k.close = func() { // the path stays, see closeConsoles
		close(closed)
		listener.Close()
		b.attach(nil)
	}
	return nil
}

func (k *console) serve(listener *net.UnixListener, b *backlog, closed <-chan struct{}) {
	var last *net.UnixConn
	var end chan error // how the last one went
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		if last != nil && hungUp(last) && errors.Is(<-end, unix.ECONNRESET) {
			<-closed // until then this one waits in vain
			conn.Close()
			return
		}
		b.attach(conn)
		ended := make(chan error, 1)
		last, end = conn, ended
		go func() {
			err := k.read(conn)
			b.detach(conn)
			if errors.Is(err, io.EOF) {
				k.typed(0) // as the real one's UART has it
			}
			ended <- err
		}()
	}
}

// read takes what is typed.
func (k *console) read(from io.Reader) error {
	data := make([]byte, 64)
	for {
		n, err := from.Read(data)
		for _, key := range data[:n] {
			k.typed(key)
		}
		if err != nil {
			return err
		}
	}
}

func (k *console) typed(key byte) {
	select {
	case k.keys <- key:
	default: // the guest doesn't read
	}
}

// terminal is the process's own: its standard input, if that is one, and output.
type terminal struct {
	in     io.Reader // nil: there is nothing to be read
	out    io.Writer
	keys   chan byte
	opened sync.Once
}

// open returns what is typed; it is read from now on, whatever becomes of the console.
func (t *terminal) open() chan byte {
	t.opened.Do(func() {
		t.keys = make(chan byte, keyBuffer)
		if t.in != nil {
			go (&console{keys: t.keys}).read(t.in)
		}
	})
	return t.keys
}

// pair makes a pair of which the guest has the one end, and returns the path
// of the other.
func (k *console) pair(f *fence) (string, error) {
	main, err := f.open("/dev/ptmx", os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	n := 0
	raw, err := main.SyscallConn()
	if err == nil {
		var inner error
		err = raw.Control(func(fd uintptr) {
			if inner = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); inner == nil {
				n, inner = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
		err = errors.Join(err, inner)
	}
	path := filepath.Join("/dev/pts", strconv.Itoa(n))
	other, openErr := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err = errors.Join(err, openErr); err == nil {
		err = makeRaw(other)
	}
	if err != nil {
		main.Close()
		return "", fmt.Errorf("making a terminal: %w", err)
	}
	// The other end stays open here, so that reading doesn't fail while nobody
	// has opened it.
	b := &backlog{out: main}
	k.out = b
	go k.read(main)
	k.close = func() {
		main.Close()
		other.Close()
	}
	return path, nil
}

func makeRaw(file *os.File) error {
	fd := int(file.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
