package qmp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/internal/unixsocket"
)

// MaxFiles is the most files that one command may carry: what QEMU's socket
// character device takes from one message (TCP_MAX_FDS in its
// chardev/char-socket.c). The commands of QEMU up to 10.0 use one each.
const MaxFiles = 16

// Execute carries out a command and waits for its reply.
//
// The arguments are encoded to a JSON object; nil means none. The reply's value is
// decoded into result, which may be nil, or a *json.RawMessage to have all of it as
// it came.
//
// The error is an [*Error] if QEMU refused the command, [ErrDisconnected] if the
// connection ended, [ErrSilent] if it took too long, the context's error if that ended
// first; if it is [ErrNotSent] too, QEMU has not seen the command.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	return c.ExecuteWithFiles(ctx, command, args, result)
}

// ExecuteWithFiles is Execute with files that travel with the command's first
// byte, for getfd and add-fd. The files stay the caller's, who may close them as
// soon as it returns.
func (c *Client) ExecuteWithFiles(ctx context.Context, command string, args, result any, files ...*os.File) error {
	if c.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.patience, c.silent)
		defer cancel()
	}
	id, replies, err := c.register()
	if err != nil {
		return fmt.Errorf("QMP command %s: %w: %w", command, ErrNotSent, err)
	}
	defer c.forget(id, replies)
	line, err := encodeRequest(id, command, args)
	if err != nil {
		return fmt.Errorf("QMP command %s: %w: %w", command, ErrNotSent, err)
	}
	if err := c.send(ctx, line, files); err != nil {
		return fmt.Errorf("QMP command %s: %w", command, err)
	}
	m, err := c.await(ctx, replies)
	if err != nil {
		return fmt.Errorf("QMP command %s: %w", command, err)
	}
	defer m.held.release()
	if n := values(m.Return); c.room != nil && n > c.maxValues {
		return fmt.Errorf("QMP command %s: %w: its reply has %d values, at most %d are read", command, ErrMessageTooLong, n, c.maxValues)
	}
	return m.result(command, result)
}

// values counts what each value in JSON has one of before it, or its parent has. Those in
// texts count, too.
func values(reply []byte) (n int) {
	for _, separator := range []string{",", "[", "{"} {
		n += bytes.Count(reply, []byte(separator))
	}
	return n
}

func (m message) result(command string, result any) error {
	if m.Error != nil {
		return &Error{Command: command, Class: m.Error.Class, Desc: clip(m.Error.Desc)}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Return, result); err != nil {
		return fmt.Errorf("QMP command %s: its reply %s does not fit %T: %w", command, excerpt(m.Return), result, err)
	}
	return nil
}

// register makes an id and the place for its reply. It comes before the command is
// sent, or the reply might be missed.
func (c *Client) register() (id string, replies <-chan message, err error) {
	reply := make(chan message, 1) // so that the reader never waits for a caller
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return "", nil, c.err
	}
	c.lastID++
	id = c.idPrefix + strconv.FormatUint(c.lastID, 10)
	c.pending[id] = reply
	return id, reply, nil
}

// forget drops a call that has its reply, or waits for it no longer.
func (c *Client) forget(id string, replies <-chan message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
	select {
	case m := <-replies:
		m.held.release()
	default:
	}
}

func (c *Client) await(ctx context.Context, replies <-chan message) (message, error) {
	var err error
	select {
	case m := <-replies:
		return m, nil
	case <-ctx.Done():
		err = fmt.Errorf("no reply, whether it is carried out is unknown: %w", over(ctx))
	case <-c.done:
		err = fmt.Errorf("no reply: %w", c.err)
	}
	select {
	case m := <-replies: // the reply that came just before the end
		return m, nil
	default:
		return message{}, err
	}
}

// over says why a call's time is.
func over(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrSilent) {
		return cause
	}
	return ctx.Err()
}

// send writes one message. Writers take turns. If ctx ends in the middle of a
// message the rest is left for the next writer, as the stream must not be cut
// there: giving up one call to a VMM that is busy must not cost the connection.
func (c *Client) send(ctx context.Context, line []byte, files []*os.File) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, over(ctx))
	}
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: the VMM does not read and other calls are waiting too: %w", ErrNotSent, over(ctx))
	case <-c.done:
		return fmt.Errorf("%w: %w", ErrNotSent, c.err)
	}
	defer func() { <-c.writing }()
	defer c.interruptWrites(ctx)()

	if len(c.unsent) > 0 {
		n, err := c.conn.Write(c.unsent)
		c.unsent = c.unsent[n:]
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, c.writeError(ctx, err))
		}
		c.unsent = nil
	}
	n, err := c.write(line, files)
	switch {
	case err == nil:
		return nil
	case n == 0:
		return fmt.Errorf("%w: %w", ErrNotSent, c.writeError(ctx, err))
	}
	c.unsent = line[n:]
	return fmt.Errorf("%d of %d bytes sent, whether it is carried out is unknown: %w", n, len(line), c.writeError(ctx, err))
}

// interruptWrites makes the end of ctx end a write. What it returns undoes that
// and must be called before the next write.
func (c *Client) interruptWrites(ctx context.Context) (undo func()) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.conn.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	return func() {
		if !stop() {
			<-interrupted
			c.conn.SetWriteDeadline(time.Time{})
		}
	}
}

// writeError says why a write ended: the deadline that the context set, or the
// connection. It doesn't end the connection: the peer's last words, such as its
// SHUTDOWN, may still wait to be read.
func (c *Client) writeError(ctx context.Context, err error) error {
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() && ctx.Err() != nil {
		return fmt.Errorf("the VMM does not read: %w", over(ctx))
	}
	if errors.Is(err, errFiles) {
		return err
	}
	return disconnected(err)
}

// errFiles marks faults of the files to be sent, which leave the connection whole.
var errFiles = errors.New("files can't be sent")

// write writes the line with the files on its first byte. QEMU reads its monitor
// byte by byte and gives a command the files that came last, so they must neither
// come before nor in a message of their own.
func (c *Client) write(line []byte, files []*os.File) (int, error) {
	if len(files) == 0 {
		return c.conn.Write(line)
	}
	conn, ok := c.conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%w: %T is not a unix socket", errFiles, c.conn)
	}
	if len(files) > MaxFiles {
		return 0, fmt.Errorf("%w: %d files, the most that one command carries is %d", errFiles, len(files), MaxFiles)
	}
	var n int
	var err error
	if failed := unixsocket.WithDescriptors(files, func(fds []int) {
		n, _, err = conn.WriteMsgUnix(line, syscall.UnixRights(fds...), nil)
	}); failed != nil {
		return 0, fmt.Errorf("%w: %w", errFiles, failed)
	}
	if err == nil && n < len(line) {
		var rest int
		rest, err = conn.Write(line[n:])
		n += rest
	}
	return n, err
}
