package shim

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Bounds on one message.
const (
	// MaxMessage is how many bytes of JSON it may have; one from a pod may have
	// MaxPodMessage.
	MaxMessage = 16 << 20
	// MaxFiles is how many descriptors may come with it. The kernel sends 253 at once
	// (SCM_MAX_FD of include/net/scm.h).
	MaxFiles = 240

	frameHeader = 4
)

// ErrMessage is wrapped by errors about what does not follow the protocol; the
// connection that it came from is of no more use.
var ErrMessage = errors.New("not the shim's protocol")

// Wire sends and receives messages on a socket. Send may be called
// concurrently; Receive by one goroutine at a time.
type Wire struct {
	conn    *net.UnixConn
	sending sync.Mutex
}

// NewWire returns the wire on a connection, which is its own from now on.
func NewWire(conn *net.UnixConn) *Wire { return &Wire{conn: conn} }

// Close closes the connection.
func (w *Wire) Close() error { return w.conn.Close() }

// Conn returns the connection, to ask for its peer and to set deadlines.
func (w *Wire) Conn() *net.UnixConn { return w.conn }

// Send sends a message, with the files, which stay the caller's. After an error
// nothing more can be sent, as half a message may have gone; what the peer has
// sent before it left can still be received.
func (w *Wire) Send(v any, files ...*os.File) error {
	frame, err := encodeFrame(v)
	if err != nil {
		return err
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("%w: %d files, at most %d go with one message", ErrMessage, len(files), MaxFiles)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	if err := w.write(frame, rights); err != nil {
		_ = w.conn.CloseWrite() // fails if the connection has ended, which is as good
		return err
	}
	return nil
}

// write sends the rights with the first byte, and then what one sendmsg(2) left.
func (w *Wire) write(frame, rights []byte) error {
	n, _, err := w.conn.WriteMsgUnix(frame, rights, nil)
	if err != nil || n == len(frame) {
		return err // a write of nothing would fail if the peer has left by now
	}
	_, err = w.conn.Write(frame[n:])
	return err
}

func encodeFrame(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if err := checkSize(len(b), MaxMessage); err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, frameHeader+len(b)), uint32(len(b)))
	return append(frame, b...), nil
}

// Receive waits for the next message and decodes it into v. The files are the
// caller's. At the end of the connection the error is io.EOF.
func (w *Wire) Receive(v any) ([]*os.File, error) {
	return w.receive(v, func(size int) error { return checkSize(size, MaxMessage) })
}

// ReceiveAtMost is Receive of a message that has at most so many bytes.
func (w *Wire) ReceiveAtMost(v any, most int) ([]*os.File, error) {
	return w.receive(v, func(size int) error { return checkSize(size, most) })
}

// ReceiveIf is Receive of a message that admit, which is given its size in bytes before any of it is read,
// does not refuse.
func (w *Wire) ReceiveIf(v any, admit func(size int) error) ([]*os.File, error) {
	return w.receive(v, admit)
}

// receive is Receive of a message that admit, which is given its size in bytes before
// any of it is read, does not refuse.
func (w *Wire) receive(v any, admit func(size int) error) ([]*os.File, error) {
	b, files, err := readFrame(rightsReader{w.conn}, admit)
	if err == nil {
		if err = json.Unmarshal(b, v); err != nil {
			err = fmt.Errorf("%w: %w", ErrMessage, err)
		}
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// frameSource is a stream; readRights also takes the files that came with the
// bytes, which a plain read throws away.
type frameSource interface {
	io.Reader
	readRights(b []byte) (int, []*os.File, error)
}

// checkSize refuses a message that is too large.
func checkSize(size, most int) error {
	if size > most {
		return fmt.Errorf("%w: a message of %d bytes, at most %d are allowed", ErrMessage, size, most)
	}
	return nil
}

// readFrame never reads beyond the frame: the files of the next one would be
// taken for this one's.
func readFrame(r frameSource, admit func(size int) error) (body []byte, files []*os.File, err error) {
	var header [frameHeader]byte
	for n := 0; n < len(header); {
		m, more, err := r.readRights(header[n:])
		n, files = n+m, append(files, more...)
		switch {
		case len(files) > MaxFiles:
			return nil, files, fmt.Errorf("%w: more than %d files with one message", ErrMessage, MaxFiles)
		case err == io.EOF && n > 0:
			return nil, files, fmt.Errorf("%w: %w", ErrMessage, io.ErrUnexpectedEOF)
		case err != nil:
			return nil, files, err
		}
	}
	size := int(binary.BigEndian.Uint32(header[:]))
	if err := admit(size); err != nil {
		return nil, files, err
	}
	body, err = readBody(r, size)
	return body, files, err
}

// readBody takes memory as bytes come, and not as many as were announced.
func readBody(r io.Reader, size int) ([]byte, error) {
	const step = 64 << 10
	b := make([]byte, min(size, step))
	for n := 0; ; {
		m, err := io.ReadFull(r, b[n:])
		n += m
		if err != nil {
			return nil, fmt.Errorf("%w: message of %d bytes ends after %d: %w", ErrMessage, size, n, err)
		}
		if n == size {
			return b, nil
		}
		grown := make([]byte, min(size, 2*n))
		copy(grown, b)
		b = grown
	}
}

// rightsReader is a socket as a frameSource.
type rightsReader struct{ *net.UnixConn }

func (r rightsReader) readRights(b []byte) (int, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(MaxFiles*4))
	n, oobn, flags, _, err := r.ReadMsgUnix(b, oob)
	if errors.Is(err, io.EOF) {
		return 0, nil, io.EOF // as io.Reader says it
	}
	if err != nil {
		return 0, nil, err
	}
	files, err := parseRights(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: more than %d files with one message, or no room for them in the table of this process", ErrMessage, MaxFiles)
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, files, err
}

func parseRights(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrMessage, err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // credentials or the like: nobody asked for them
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
