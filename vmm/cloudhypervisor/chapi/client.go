package chapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// DefaultMaxReply bounds a reply's body, in bytes. The largest is that of
	// vm.info, which has the whole configuration and the tree of devices: some
	// hundred KiB for a VM full of devices.
	DefaultMaxReply = 4 << 20

	// DefaultTimeout bounds a call whose context has no earlier deadline. Long ones
	// are a boot, and a snapshot or restore with the RAM in it.
	DefaultTimeout = 10 * time.Minute

	// MaxBody is the longest body of a request, in bytes, that the VMM's HTTP
	// server takes up to v53 (micro_http's MAX_PAYLOAD_SIZE). Later ones take more.
	MaxBody = 51200

	// MaxFiles is the most files that one request may carry: the kernel's
	// SCM_MAX_FD (include/net/scm.h), which is also what the VMM makes room for.
	MaxFiles = 253
)

// Dialer makes a connection to the API's socket. Where files are to be sent it
// must return a *net.UnixConn.
type Dialer func(ctx context.Context) (net.Conn, error)

// Option changes how a client is made.
type Option func(*Client)

// WithMaxReply bounds a reply's body to n bytes.
func WithMaxReply(n int) Option { return func(c *Client) { c.maxReply = n } }

// WithTimeout bounds each call to d, beside its context: the wait for other calls
// is part of it.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithRoom is for a VMM that may answer anything, as one in a pod: a reply of more than
// some KiB is read only while the memory that it takes, in bytes, is in room, which any
// number of clients may share, and has ten seconds to arrive.
func WithRoom(room *semaphore.Weighted) Option { return func(c *Client) { c.room = room } }

const (
	// decodeFactor is how much memory such a reply takes while it is read and decoded,
	// times its size.
	decodeFactor = 4
	// freeReply is the size of a reply, in bytes, that takes no room.
	freeReply = 4 << 10
	// replyTime is how long a larger one may take to arrive.
	replyTime = 10 * time.Second
)

// Client calls one VMM. Its methods may be called from any goroutine. It holds no
// connection between calls, so there is nothing to close.
type Client struct {
	dial     Dialer
	maxReply int
	timeout  time.Duration
	room     *semaphore.Weighted // nil: the VMM is trusted
	turn     chan struct{}       // held, by sending into it, during a call
}

// New returns a client that connects by dial for each call. It doesn't connect yet.
func New(dial Dialer, options ...Option) *Client {
	c := &Client{dial: dial, maxReply: DefaultMaxReply, timeout: DefaultTimeout, turn: make(chan struct{}, 1)}
	for _, option := range options {
		option(c)
	}
	return c
}

// call carries out one request and decodes its reply into result, if that is not
// nil and there is a reply.
func (c *Client) call(ctx context.Context, r request, result any) error {
	message, err := r.encode()
	if err != nil {
		return fmt.Errorf("cloud-hypervisor %s: %w: %w", r.call, ErrNotSent, err)
	}
	reply, err := c.exchange(ctx, message, r.files)
	defer reply.release()
	if err != nil {
		return fmt.Errorf("cloud-hypervisor %s: %w", r.call, err)
	}
	switch {
	case reply.status/100 != 2:
		return refusal(r.call, reply.status, reply.body)
	case result == nil || len(reply.body) == 0:
		return nil
	}
	if err := json.Unmarshal(reply.body, result); err != nil {
		return fmt.Errorf("cloud-hypervisor %s: carried out, but its reply can't be read: %w: %s: %s", r.call, ErrProtocol, excerpt(reply.body), printable(err.Error()))
	}
	return nil
}

// exchange sends one request on a connection of its own and reads the reply.
func (c *Client) exchange(ctx context.Context, message []byte, files []*os.File) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.takeTurn(ctx); err != nil {
		return reply{}, err
	}
	defer func() { <-c.turn }()

	conn, err := c.dial(ctx)
	if err != nil {
		return reply{}, dialError(ctx, err)
	}
	defer conn.Close()
	// Not taken back: the connection ends with this call.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	unsent := send(conn, message, files)
	if unsent != nil && !hungUp(unsent) {
		return reply{}, fmt.Errorf("%w: %w", ErrNotSent, timeoutCause(ctx, unsent))
	}
	// A VMM that hung up early may have said why: it does when it is full.
	r, err := readReply(conn, c.maxReply, func(size int64) (func(), error) { return c.admit(ctx, conn, size) })
	switch {
	case err == nil:
		return r, nil
	case unsent != nil:
		return reply{}, fmt.Errorf("%w: %w: %w", ErrNotSent, ErrDisconnected, unsent)
	}
	return reply{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, readError(ctx, err))
}

// admit waits until there is room for a reply.
func (c *Client) admit(ctx context.Context, conn net.Conn, size int64) (release func(), err error) {
	if c.room == nil || size <= freeReply {
		return func() {}, nil
	}
	if err := c.room.Acquire(ctx, size*decodeFactor); err != nil {
		return nil, err
	}
	late := time.AfterFunc(replyTime, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		late.Stop()
		c.room.Release(size * decodeFactor)
	}, nil
}

func (c *Client) takeTurn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: another call was under way: %w", ErrNotSent, ctx.Err())
	}
}

// dialError tells a VMM that has gone from one that is busy and from all else.
func dialError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT):
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	case errors.Is(err, syscall.EAGAIN): // what connect(2) says of a full backlog
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return fmt.Errorf("%w: connecting: %w", ErrNotSent, err)
}

func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

func readError(ctx context.Context, err error) error {
	if errors.Is(err, ErrProtocol) {
		return err
	}
	if cause := timeoutCause(ctx, err); cause != err {
		return fmt.Errorf("no reply: %w", cause)
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// timeoutCause returns the context's error in place of that of the deadline which
// its end has set.
func timeoutCause(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// excerpt quotes the beginning of what the other side sent, for an error.
func excerpt(b []byte) string {
	const most = 64
	if len(b) > most {
		return fmt.Sprintf("%q...", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
