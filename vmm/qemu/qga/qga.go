// Package qga speaks to the QEMU guest agent, a service in the guest
// (https://www.qemu.org/docs/master/interop/qemu-ga-ref.html). What comes from
// there comes from the guest: nothing of it is trusted, and it is bounded.
package qga

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// MaxReply bounds what is read of one reply, in bytes.
const MaxReply = 64 << 10

// maxStale bounds what is thrown away before the agent is in step: what it still
// had to say to others.
const maxStale = 1 << 20

// sentinel is a byte that is never a part of JSON in UTF-8. Sent, it makes the
// agent drop what it had read so far; received, it says that the answer to
// guest-sync-delimited comes next.
const sentinel = 0xff

// ErrProtocol means that what came is not what an agent says.
var ErrProtocol = errors.New("not the guest agent's protocol")

// ErrUnfit is wrapped by the error of a reply after which the agent is still in step.
var ErrUnfit = errors.New("its reply does not fit")

// Error is the agent's refusal.
type Error struct {
	Command, Class, Desc string
}

// Error has a bounded part of the agent's words.
func (e *Error) Error() string {
	return fmt.Sprintf("guest agent command %s: %.200q (%.40q)", e.Command, e.Desc, e.Class)
}

// Client is a connection to an agent that was in step when it was made. It is for
// one goroutine.
type Client struct {
	conn   net.Conn
	reader *bufio.Reader
}

// New gets in step with the agent: it answers, and what it says from then on are
// replies to this client. The channel has no connections of its own, so there may
// be none on the other side: the error then is the context's. New owns conn and
// closes it if it fails.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{conn: conn, reader: bufio.NewReaderSize(conn, 4<<10)}
	if err := c.within(ctx, c.synchronise); err != nil {
		conn.Close()
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// within makes the end of ctx end the reads and writes of f.
func (c *Client) within(ctx context.Context, f func() error) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.conn.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	err := f()
	if !stop() {
		<-interrupted
		c.conn.SetDeadline(time.Time{})
		if err != nil {
			return fmt.Errorf("no answer: %w", ctx.Err())
		}
	}
	return err
}

func (c *Client) synchronise() error {
	id := rand.Int64N(1 << 53)
	if _, err := c.conn.Write([]byte{sentinel}); err != nil {
		return err
	}
	if err := c.send("guest-sync-delimited", map[string]int64{"id": id}); err != nil {
		return err
	}
	for stale := 0; stale < maxStale; {
		skipped, err := c.skipToSentinel(maxStale - stale)
		if err != nil {
			return err
		}
		line, err := c.line()
		if err != nil {
			return err
		}
		var echo int64
		if c.decode("guest-sync-delimited", line, &echo) == nil && echo == id {
			return nil
		}
		stale += skipped + len(line) + len("\xff\n") // to an earlier client
	}
	return fmt.Errorf("%w: more than %d bytes and no answer among them", ErrProtocol, maxStale)
}

func (c *Client) skipToSentinel(most int) (int, error) {
	for n := range most {
		b, err := c.reader.ReadByte()
		if err != nil {
			return n, err
		}
		if b == sentinel {
			return n, nil
		}
	}
	return most, fmt.Errorf("%w: more than %d bytes and no answer among them", ErrProtocol, maxStale)
}

func (c *Client) execute(command string, args, result any) error {
	if err := c.send(command, args); err != nil {
		return fmt.Errorf("guest agent command %s: %w", command, err)
	}
	line, err := c.line()
	if err != nil {
		return fmt.Errorf("guest agent command %s: %w", command, err)
	}
	return c.decode(command, line, result)
}

func (c *Client) send(command string, args any) error {
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": args})
	if err != nil {
		return err
	}
	_, err = c.conn.Write(append(request, '\n'))
	return err
}

// line returns the next line that is not empty, as a copy.
func (c *Client) line() ([]byte, error) {
	var line []byte
	for {
		part, err := c.reader.ReadSlice('\n')
		if len(line)+len(part) > MaxReply {
			return nil, fmt.Errorf("%w: a reply of more than %d bytes", ErrProtocol, MaxReply)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

func (c *Client) decode(command string, line []byte, result any) error {
	var reply struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Class string `json:"class"`
			Desc  string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return fmt.Errorf("guest agent command %s: %w: %.80q", command, ErrProtocol, line)
	}
	switch {
	case reply.Error != nil:
		return &Error{Command: command, Class: reply.Error.Class, Desc: reply.Error.Desc}
	case reply.Return == nil:
		return fmt.Errorf("guest agent command %s: %w: %.80q is no reply", command, ErrProtocol, line)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(reply.Return, result); err != nil {
		return fmt.Errorf("guest agent command %s: %w: %w: %.80q", command, ErrProtocol, ErrUnfit, reply.Return)
	}
	return nil
}
