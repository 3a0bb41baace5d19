package qmp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// restingBuffer is what a connection keeps for reading when nothing comes. All
// replies but the schema and the like fit in it.
const restingBuffer = 4 << 10

// lineReader cuts the stream into messages. QEMU puts one on a line.
// It is the connection's only reader, from the greeting on: a second one would
// lose what the first had read ahead.
type lineReader struct {
	r     *bufio.Reader
	max   int    // bytes in a message, the line's end not counted
	guest *guest // nil: the peer is trusted
	held  *share // of the room, for the line that was read last
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, restingBuffer), max: max}
}

// next returns the next line that isn't blank, without its end. It is good until
// the next call. Only a line longer than the resting buffer gets memory of its
// own, which is not kept.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err == nil && l.guest != nil {
			err = l.guest.arrived(len(line), l.held)
		}
		if err != nil {
			l.held.release()
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

func (l *lineReader) line() ([]byte, error) {
	l.held = nil
	line, err := l.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line)
		if err := l.long(); err != nil {
			return nil, err
		}
	}
	for err == bufio.ErrBufferFull && len(line) <= l.max {
		var more []byte
		more, err = l.r.ReadSlice('\n')
		line = append(line, more...)
	}
	switch {
	case len(bytes.TrimRight(line, "\r\n")) > l.max:
		return nil, fmt.Errorf("%w: more than %d bytes without the end of a line, beginning %s", ErrMessageTooLong, l.max, excerpt(line))
	case err == io.EOF && len(bytes.TrimSpace(line)) > 0:
		return nil, fmt.Errorf("in the middle of a message, after %s: %w", excerpt(line), io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	}
	return line, nil
}

// long waits for room for a line that is longer than the resting buffer.
func (l *lineReader) long() (err error) {
	if l.guest != nil {
		l.held, err = l.guest.long()
	}
	return err
}

// message is whatever QEMU sends: the greeting, a reply or an event. Raw members
// are copies and may be kept.
type message struct {
	QMP       json.RawMessage `json:"QMP"`
	ID        json.RawMessage `json:"id"`
	Return    json.RawMessage `json:"return"`
	Error     *wireError      `json:"error"`
	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp timestamp       `json:"timestamp"`

	held *share // of the room
}

type wireError struct {
	Class ErrorClass `json:"class"`
	Desc  string     `json:"desc"`
}

// timestamp is QEMU's: seconds and microseconds of the host's clock since the
// epoch, both -1 when the host could not tell.
type timestamp struct {
	Seconds      int64 `json:"seconds"`
	Microseconds int64 `json:"microseconds"`
}

func (t timestamp) time() time.Time {
	if t.Seconds < 0 || t.Microseconds < 0 || t.Microseconds >= 1e6 || t == (timestamp{}) {
		return time.Time{}
	}
	return time.Unix(t.Seconds, t.Microseconds*1000)
}

func decodeMessage(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("%w: received %s: %w", ErrProtocol, excerpt(line), err)
	}
	return m, nil
}

// request is a command on its way to QEMU.
type request struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	ID        string          `json:"id"`
}

// encodeRequest makes the line for a command. Arguments that encode to null are
// left out; anything else but an object is refused here, as QEMU would.
func encodeRequest(id, command string, args any) ([]byte, error) {
	r := request{Execute: command, ID: id}
	if args != nil {
		encoded, err := json.Marshal(args)
		if err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
		if !bytes.Equal(encoded, []byte("null")) {
			if encoded[0] != '{' {
				return nil, fmt.Errorf("arguments of type %T encode to %s: want a JSON object", args, excerpt(encoded))
			}
			r.Arguments = encoded
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(line, '\n'), nil
}

// excerpt quotes the beginning of what the other side sent, for an error.
func excerpt(b []byte) string {
	const most = 64
	if len(b) > most {
		return fmt.Sprintf("%q...", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
