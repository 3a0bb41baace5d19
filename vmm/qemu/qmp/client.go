package qmp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// DefaultMaxMessageSize bounds a received message, in bytes, unless
// WithMaxMessageSize says otherwise. The largest reply known is the schema, of
// 236 KiB in QEMU 10.0.
const DefaultMaxMessageSize = 32 << 20

// maxGreeting bounds the greeting of a peer that isn't trusted, in bytes: QEMU's has some
// hundred.
const maxGreeting = 16 << 10

// Option changes how a client is made.
type Option func(*Client)

// WithMaxMessageSize bounds a received message to n bytes. A longer one ends the
// connection with ErrMessageTooLong. A process that must stay small and asks for no
// schema does well with 64 KiB.
func WithMaxMessageSize(n int) Option { return func(c *Client) { c.maxMessage = n } }

// WithEventCapacity sets how many events a subscription made by
// [Client.Subscribe] holds for a subscriber that is behind.
func WithEventCapacity(n int) Option { return func(c *Client) { c.eventCapacity = n } }

// WithEventBytes sets how many bytes of events a subscription holds for a subscriber that
// is behind. One event alone may have more.
func WithEventBytes(n int) Option { return func(c *Client) { c.eventBytes = n } }

// CallTime is what a VM's QEMU may well take for a command. It does most of them at once,
// but stop waits for the requests to disks that are under way.
const CallTime = time.Minute

// WithPatience bounds how long a command waits for its reply, which then fails with
// [ErrSilent]: all that takes long QEMU does in the background. The default is for ever.
func WithPatience(d time.Duration) Option {
	return func(c *Client) {
		c.patience, c.silent = d, fmt.Errorf("%w for %v: it hangs, or waits for one of its disks", ErrSilent, d)
	}
}

// Client is a negotiated connection to a monitor. All its methods may be called
// from any goroutine.
type Client struct {
	conn          net.Conn
	lines         *lineReader
	maxMessage    int
	eventCapacity int
	eventBytes    int
	room          *semaphore.Weighted // nil: the peer is trusted
	maxValues     int                 // in a reply, with room
	patience      time.Duration       // 0: without end
	silent        error               // that it is over
	greeting      Greeting
	idPrefix      string

	writing chan struct{} // held, by sending into it, while a message is written
	unsent  []byte        // rest of a message whose writer was interrupted; guarded by writing

	mu      sync.Mutex
	lastID  uint64
	pending map[string]chan<- message // by id
	subs    []*Subscription
	closing bool
	err     error

	done chan struct{} // closed when the reader has ended, after err was set
}

// Greeting is what QEMU says first.
type Greeting struct {
	Version Version
	// Capabilities that QEMU offers. This client enables none: out-of-band execution
	// is for a handful of commands, and files can be sent without it.
	Capabilities []string
	// Raw is the whole of it, with the members that this package doesn't know.
	Raw json.RawMessage
}

// Version is QEMU's version. To find out what QEMU can do ask for its schema:
// distributions backport features and leave the version alone.
type Version struct {
	Major, Minor, Micro int
	// Package is the distributor's version, such as "Debian 1:7.2+dfsg-7"; it may be empty.
	Package string
}

// String returns the version as in "7.2.22".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// Dial connects to the monitor at a unix socket's path and negotiates, see [New].
func Dial(ctx context.Context, path string, options ...Option) (*Client, error) {
	// sockaddr_un.sun_path has 108 bytes, and the last is NUL. The kernel's
	// own error for this is a bare "invalid argument".
	if len(path) > 107 {
		return nil, fmt.Errorf("dialing QMP monitor %s: path has %d bytes and a socket's address holds 107: connect through a shorter path such as /proc/self/fd/N/NAME", path, len(path))
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("dialing QMP monitor: %w", err)
	}
	client, err := New(ctx, conn, options...)
	if err != nil {
		return nil, fmt.Errorf("QMP monitor %s: %w", path, err)
	}
	return client, nil
}

// New negotiates on a connection to a monitor: it waits for the greeting and
// leaves the negotiation mode, both until ctx ends. It owns conn from then on and
// closes it if it fails. The context is not needed any more after New returned.
//
// Files can be sent only if conn is a *net.UnixConn.
func New(ctx context.Context, conn net.Conn, options ...Option) (*Client, error) {
	c := &Client{
		conn:          conn,
		maxMessage:    DefaultMaxMessageSize,
		eventCapacity: DefaultEventCapacity,
		eventBytes:    DefaultEventBytes,
		// Not a secret: it only has to differ from the last connection's.
		idPrefix: fmt.Sprintf("%08x-", rand.Uint32()),
		writing:  make(chan struct{}, 1),
		pending:  make(map[string]chan<- message),
		done:     make(chan struct{}),
	}
	for _, option := range options {
		option(c)
	}
	c.lines = newLineReader(conn, c.maxMessage)
	if c.room != nil {
		c.lines.max = min(c.maxMessage, maxGreeting)
	}
	if err := c.readGreeting(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	if c.room != nil {
		c.lines.max, c.lines.guest = c.maxMessage, newGuest(conn, c.room, c.maxMessage)
	}
	go c.read()
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, fmt.Errorf("negotiating: %w", err)
	}
	return c, nil
}

// Greeting returns what QEMU said first. Its slices are shared: don't change them.
func (c *Client) Greeting() Greeting { return c.greeting }

// Done is closed when the connection has ended, and Err then says how.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection is there, and ErrDisconnected with its
// cause afterwards.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection and returns when no goroutine of the client is left.
// Waiting calls and subscriptions get ErrDisconnected wrapping net.ErrClosed. The
// VM is not touched. Closing twice is no error.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	if c.lines.guest != nil {
		c.lines.guest.end() // the reader may wait for room
	}
	c.conn.Close() // wakes the reader; it can fail only by having been closed
	<-c.done
	return nil
}

func (c *Client) readGreeting(ctx context.Context) error {
	// The deadline is never taken back: once ctx has ended New fails anyway.
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := c.awaitGreeting()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w: a monitor serves one client at a time and lets another wait in silence, so another client may hold it, or the VMM is stuck, or this is no QMP monitor",
			ErrNoGreeting, ctx.Err())
	case err != nil:
		return fmt.Errorf("waiting for the greeting: %w", disconnected(err))
	}
	c.greeting, err = decodeGreeting(raw)
	return err
}

// awaitGreeting skips what QEMU may still have had to say to an earlier client.
func (c *Client) awaitGreeting() (json.RawMessage, error) {
	for {
		line, err := c.lines.next()
		if err != nil {
			return nil, err
		}
		m, err := decodeMessage(line)
		if err != nil {
			return nil, err
		}
		if m.QMP != nil {
			return m.QMP, nil
		}
	}
}

func decodeGreeting(raw json.RawMessage) (Greeting, error) {
	var g struct {
		Version struct {
			QEMU struct {
				Major int `json:"major"`
				Minor int `json:"minor"`
				Micro int `json:"micro"`
			} `json:"qemu"`
			Package string `json:"package"`
		} `json:"version"`
		Capabilities []json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		return Greeting{}, disconnected(fmt.Errorf("%w: greeting %s: %w", ErrProtocol, excerpt(raw), err))
	}
	v := g.Version.QEMU
	greeting := Greeting{Version: Version{v.Major, v.Minor, v.Micro, g.Version.Package}, Raw: raw}
	for _, capability := range g.Capabilities {
		var name string
		if json.Unmarshal(capability, &name) == nil { // another kind of value is in Raw
			greeting.Capabilities = append(greeting.Capabilities, name)
		}
	}
	return greeting, nil
}

// read is the connection's one reader, and it waits for nobody but the peer.
func (c *Client) read() {
	err := c.readMessages()
	c.conn.Close()
	if c.lines.guest != nil {
		c.lines.guest.end()
	}
	c.mu.Lock()
	if c.closing {
		err = net.ErrClosed
	}
	c.err = disconnected(err)
	c.pending, c.subs = nil, nil
	c.mu.Unlock()
	close(c.done)
}

func (c *Client) readMessages() error {
	for {
		line, err := c.lines.next()
		if err != nil {
			return err
		}
		m, err := decodeMessage(line)
		if err != nil {
			c.lines.held.release()
			return err
		}
		if m.Error == nil && m.Return == nil || m.Event != "" {
			c.lines.held.release()
		} else {
			m.held = c.lines.held
		}
		switch {
		case m.Event != "":
			c.publish(Event{Name: m.Event, Data: m.Data, Timestamp: m.Timestamp.time()})
		case m.Error != nil && m.ID == nil:
			// QEMU could not read what was sent. Which call that was is
			// unknown, and its caller would wait for good.
			m.held.release()
			return fmt.Errorf("%w: error without an id: %.200q", ErrProtocol, m.Error.Desc)
		case m.Error != nil || m.Return != nil:
			c.deliver(m)
		}
		// Anything else is from a newer QEMU and not for us.
	}
}

// deliver hands a reply to its caller, if that still waits. Ids of ours are strings
// that JSON does not escape.
func (c *Client) deliver(m message) {
	n := len(m.ID)
	if n < 2 || m.ID[0] != '"' {
		m.held.release()
		return
	}
	id := string(m.ID[1 : n-1])
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply := c.pending[id]; reply != nil {
		delete(c.pending, id)
		reply <- m // has room for the one reply it can get
	} else {
		m.held.release()
	}
}

var _ io.Closer = (*Client)(nil)
