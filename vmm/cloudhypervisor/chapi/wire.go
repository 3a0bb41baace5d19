package chapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/vmlet/vmlet/internal/unixsocket"
)

// maxHead bounds a reply's status line and headers together, in bytes. The VMM
// sends some hundred.
const maxHead = 8 << 10

// maxValues bounds the values in a reply. An empty object of two bytes can become a
// struct of hundreds, so a bound on the bytes alone would not bound the memory. A VM
// full of devices has some ten thousand.
const maxValues = 100_000

// request is one call. A nil body is none at all: most calls refuse any.
type request struct {
	method string
	call   string // the endpoint's name
	body   any
	files  []*os.File
}

// encode makes the whole message. It has the two headers that the VMM's server
// reads and the one that HTTP/1.1 demands, which keeps its head within the 1,024
// bytes that the server reads at a time.
func (r request) encode() ([]byte, error) {
	if len(r.files) > MaxFiles {
		return nil, fmt.Errorf("%d files, the most that one request carries is %d", len(r.files), MaxFiles)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s /api/v1/%s HTTP/1.1\r\nHost: localhost\r\n", r.method, r.call)
	if r.body == nil {
		b.WriteString("\r\n")
		return b.Bytes(), nil
	}
	body, err := encodeJSON(r.body)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxBody {
		return nil, fmt.Errorf("the request's body has %d bytes and cloud-hypervisor takes %d: add disks, networks and devices after vm.create, each by a call of its own", len(body), MaxBody)
	}
	fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	return b.Bytes(), nil
}

// encodeJSON is json.Marshal without the escapes for HTML, which only cost room.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// send writes the message with the files on its first byte, where the server
// looks for them: it gives a request all files that came while it was read.
func send(conn net.Conn, message []byte, files []*os.File) error {
	if len(files) == 0 {
		_, err := conn.Write(message)
		return err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("files can't be sent: %T is not a unix socket", conn)
	}
	var n int
	var err error
	if failed := unixsocket.WithDescriptors(files, func(fds []int) {
		n, _, err = unix.WriteMsgUnix(message, syscall.UnixRights(fds...), nil)
	}); failed != nil {
		return fmt.Errorf("files can't be sent: %w", failed)
	}
	if err == nil && n < len(message) { // a send buffer smaller than the message
		_, err = conn.Write(message[n:])
	}
	return err
}

// reply is what is of use of an HTTP response.
type reply struct {
	status int
	body   []byte
	done   func() // gives back the room that it takes; nil: it takes none
}

func (r reply) release() {
	if r.done != nil {
		r.done()
	}
}

// readReply reads one response whose body is at most maxBody bytes long, and for which
// admit, which is given its size, finds room. After an error nothing is taken. Its errors
// are the reader's (io.EOF if it ended before the first byte) or ErrProtocol.
func readReply(r io.Reader, maxBody int, admit func(size int64) (func(), error)) (reply, error) {
	limited := &io.LimitedReader{R: r, N: maxHead}
	buffered := bufio.NewReader(limited)
	status, length, err := readHead(textproto.NewReader(buffered))
	if err != nil {
		if limited.N == 0 { // whatever was cut there
			err = fmt.Errorf("%w: the head of a reply has more than %d bytes", ErrTooLong, maxHead)
		}
		return reply{}, err
	}
	if length > int64(maxBody) {
		return reply{}, fmt.Errorf("%w: a reply of %d bytes where at most %d are read", ErrTooLong, length, maxBody)
	}
	release, err := admit(length)
	if err != nil {
		return reply{}, err
	}
	// Of the body, what is buffered has been read already.
	limited.N = max(0, length-int64(buffered.Buffered()))
	// Read as it comes, not into room for what was announced.
	body, err := io.ReadAll(io.LimitReader(buffered, length))
	if err == nil && int64(len(body)) < length {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && separators(body) > maxValues {
		err = fmt.Errorf("%w: a reply of more than %d values", ErrTooLong, maxValues)
	}
	if err != nil {
		release()
		return reply{}, err
	}
	return reply{status, body, release}, nil
}

// separators counts what each value in JSON has one of before it, or its parent has.
// Those in strings count, too.
func separators(body []byte) (n int) {
	for _, separator := range []string{",", "[", "{"} {
		n += bytes.Count(body, []byte(separator))
	}
	return n
}

// readHead reads the status line and the headers, and returns the body's length.
func readHead(r *textproto.Reader) (status int, length int64, err error) {
	line, err := r.R.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) > 0:
		return 0, 0, io.ErrUnexpectedEOF
	case err != nil && !errors.Is(err, bufio.ErrBufferFull): // such a line is no status
		return 0, 0, err
	}
	if status, err = parseStatus(strings.TrimRight(string(line), "\r\n")); err != nil {
		return 0, 0, err
	}
	header, err := r.ReadMIMEHeader()
	var malformed textproto.ProtocolError
	switch {
	case errors.As(err, &malformed):
		return 0, 0, fmt.Errorf("%w: %.200q", ErrProtocol, malformed.Error())
	case errors.Is(err, io.EOF):
		return 0, 0, io.ErrUnexpectedEOF
	case err != nil:
		return 0, 0, err
	}
	length, err = parseLength(status, header)
	return status, length, err
}

// parseStatus reads the status line. The words after the number are optional, and
// the VMM sends none.
func parseStatus(line string) (int, error) {
	version, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(number, 10, 16)
	if (version != "HTTP/1.1" && version != "HTTP/1.0") || err != nil || len(number) != 3 || status < 200 || status > 599 {
		return 0, fmt.Errorf("%w: a reply begins with %s: want HTTP/1.1 and a status", ErrProtocol, excerpt([]byte(line)))
	}
	return int(status), nil
}

// parseLength says how long the body is. Other ways of telling that than
// Content-Length are not for us: the VMM's server has none.
func parseLength(status int, header textproto.MIMEHeader) (int64, error) {
	if encodings := header.Values("Transfer-Encoding"); len(encodings) > 0 {
		return 0, fmt.Errorf("%w: a reply with Transfer-Encoding %s: want a Content-Length", ErrProtocol, excerpt([]byte(encodings[0])))
	}
	lengths := header.Values("Content-Length")
	if status == statusNoContent || len(lengths) == 0 {
		return 0, nil
	}
	length, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil || len(lengths) > 1 {
		return 0, fmt.Errorf("%w: a reply with %d headers Content-Length, the first %s: want one number", ErrProtocol, len(lengths), excerpt([]byte(lengths[0])))
	}
	return int64(length), nil
}
