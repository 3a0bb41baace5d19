package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm/shim/internal/rundir"
	"golang.org/x/time/rate"
)

// ErrDisconnected is wrapped by the errors of requests whose connection ended
// before their reply: whether they were carried out is unknown.
var ErrDisconnected = errors.New("shim disconnected")

// undoTime is how long a cancelled request waits for the shim to have undone
// it: the time that the shim gives a VMM to answer, and some.
const undoTime = 30 * time.Second

// messageRate bounds the messages a second, after a burst. The most that a shim has
// to say is the progress of a save: one a chunk of 4 MiB, some hundreds a second, and
// it leaves out what its agent is too slow for.
const (
	messageRate  = 2000
	messageBurst = 4000
)

// eventQueue is how many events wait for a slow reader. A shim has two.
const eventQueue = 8

// Bounds, in bytes, on what is kept of a shim's words, which may be a pod's.
const (
	// maxWelcome is room for a plan, and for what an agent has had kept: a
	// specification and some.
	maxWelcome = 4 << 20
	// maxField and maxErrorText are of what went wrong.
	maxField     = 256
	maxErrorText = 64 << 10
)

// Client is an agent's connection to one shim. Its methods may be called
// concurrently. A request that the shim refused is an *Error.
type Client struct {
	wire    *Wire
	welcome Welcome
	events  chan Event

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]*call
	closing bool
	err     error // set before done is closed
	done    chan struct{}
}

// call is a request under way.
type call struct {
	id       uint64
	reply    chan reply    // room for the one
	progress chan Progress // room for the latest; nil: nobody asks
}

type reply struct {
	Message
	files []*os.File
}

// Dial connects to the shim of a run folder.
func Dial(ctx context.Context, runDir string) (*Client, error) {
	conn, err := DialSocket(ctx, runDir, SocketName)
	if err != nil {
		return nil, err
	}
	return NewClient(ctx, conn)
}

// DialSocket connects to a socket of a run folder by its name: the path may be
// longer than a socket's address can be.
func DialSocket(ctx context.Context, runDir, name string) (*net.UnixConn, error) {
	dir, err := rundir.Open(runDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Dial(ctx, name)
}

// NewClient says hello on a connection, which is the client's from now on. It
// fails with CodeVersion if the two don't speak the same protocol.
func NewClient(ctx context.Context, conn *net.UnixConn) (*Client, error) {
	c := &Client{
		wire:    NewWire(conn),
		events:  make(chan Event, eventQueue),
		pending: make(map[uint64]*call),
		done:    make(chan struct{}),
	}
	go c.read()
	if err := c.hello(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("shim: %w", err)
	}
	return c, nil
}

func (c *Client) hello(ctx context.Context) error {
	r, err := c.do(ctx, OpHello, Hello{Major: VersionMajor, Minor: VersionMinor})
	if err != nil {
		return err
	}
	if len(r.Body) > maxWelcome {
		closeAll(r.files)
		return fmt.Errorf("%w: a welcome of %d bytes, at most %d are allowed", ErrMessage, len(r.Body), maxWelcome)
	}
	welcome, err := decodeBody[Welcome](OpHello, r)
	if err != nil {
		return err
	}
	c.welcome = *welcome
	return checkVersion(welcome.Major, welcome.Minor)
}

// checkVersion refuses shims older than the previous minor version. Newer ones
// of the same major version only know more.
func checkVersion(major, minor int) error {
	if major != VersionMajor || minor < VersionMinor-1 {
		return &Error{Code: CodeVersion, Message: fmt.Sprintf(
			"the shim speaks version %d.%d of the protocol, this agent %d.%d and one minor version less: stop the VM with the agent that started it",
			major, minor, VersionMajor, VersionMinor)}
	}
	return nil
}

// Welcome returns what the shim said when the connection was made.
func (c *Client) Welcome() Welcome { return c.welcome }

// Events returns what happens unasked. A reader that falls behind loses the
// oldest. The channel is closed when the connection ends.
func (c *Client) Events() <-chan Event { return c.events }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil until Done, then why the connection ended, wrapping
// ErrDisconnected.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection; a save that isn't committed is aborted by the
// shim, the VM goes on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	err := c.wire.Close()
	<-c.done
	return err
}

// decodeBody decodes a reply that comes without files.
func decodeBody[T any](op Op, r reply) (*T, error) {
	closeAll(r.files)
	var v T
	if err := json.Unmarshal(r.Body, &v); err != nil {
		return nil, fmt.Errorf("%w: reply to %s: %w", ErrMessage, op, err)
	}
	return &v, nil
}

// do sends a request and waits for its reply.
func (c *Client) do(ctx context.Context, op Op, args any) (reply, error) {
	pending, err := c.send(ctx, op, args, nil, false)
	if err != nil {
		return reply{}, err
	}
	defer c.forget(pending.id)
	return c.finish(ctx, op, pending, nil)
}

func (c *Client) send(ctx context.Context, op Op, args any, files []*os.File, progress bool) (*call, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	request := Request{Op: op, Files: len(files)}
	if args != nil {
		b, err := json.Marshal(args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		request.Args = b
	}
	pending := &call{reply: make(chan reply, 1)}
	if progress {
		pending.progress = make(chan Progress, 1)
	}
	if err := c.register(&request, pending); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := c.wire.Send(request, files...); err != nil {
		c.forget(request.ID)
		if errors.Is(err, ErrMessage) {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		if errors.Is(err, net.ErrClosed) { // by the reader, who knows why
			<-c.done
			return nil, fmt.Errorf("%s: %w", op, c.err)
		}
		return nil, fmt.Errorf("%s: %w: %w", op, ErrDisconnected, err)
	}
	return pending, nil
}

// finish waits for a request's reply. Progress is called from here.
func (c *Client) finish(ctx context.Context, op Op, pending *call, progress func(Progress)) (reply, error) {
	r, err := c.await(ctx, pending, progress)
	if err != nil {
		return reply{}, fmt.Errorf("%s: %w", op, err)
	}
	if r.Error != nil {
		closeAll(r.files)
		r.Error.Field = strings.ToValidUTF8(r.Error.Field[:min(len(r.Error.Field), maxField)], "")
		r.Error.Message = strings.ToValidUTF8(r.Error.Message[:min(len(r.Error.Message), maxErrorText)], "")
		return reply{}, r.Error
	}
	return r, nil
}

func (c *Client) await(ctx context.Context, pending *call, progress func(Progress)) (reply, error) {
	for {
		select {
		case r := <-pending.reply:
			return r, nil
		case p := <-pending.progress:
			progress(p)
		case <-ctx.Done():
			return reply{}, fmt.Errorf("no reply from the shim yet, it may still carry it out: %w", context.Cause(ctx))
		case <-c.done:
			select {
			case r := <-pending.reply: // it came just before the end
				return r, nil
			default:
				return reply{}, c.err
			}
		}
	}
}

func (c *Client) register(r *Request, pending *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		return c.err
	}
	c.nextID++
	r.ID, pending.id = c.nextID, c.nextID
	c.pending[r.ID] = pending
	return nil
}

// forget drops a call that has its reply or does not wait for it any more.
func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// read is the connection's one reader; it waits for nobody but the shim.
func (c *Client) read() {
	err := c.readMessages()
	c.wire.Close()
	c.mu.Lock()
	if c.closing {
		err = net.ErrClosed
	}
	c.err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	c.pending = nil
	c.mu.Unlock()
	close(c.done)
	close(c.events)
}

// readMessages doesn't read faster than a shim has things to say: one that floods
// its agent waits, and costs it little.
func (c *Client) readMessages() error {
	pace := rate.NewLimiter(messageRate, messageBurst)
	for {
		if err := pace.Wait(context.Background()); err != nil {
			return err
		}
		var m Message
		files, err := c.wire.Receive(&m)
		if err == nil && len(files) != m.Files {
			closeAll(files)
			err = fmt.Errorf("%w: %d files came with a message that says %d", ErrMessage, len(files), m.Files)
		}
		if err != nil {
			return err
		}
		c.dispatch(m, files)
	}
}

func (c *Client) dispatch(m Message, files []*os.File) {
	if m.Event != nil {
		closeAll(files)
		putLatest(c.events, *m.Event)
		return
	}
	c.mu.Lock()
	pending := c.pending[m.ID]
	if m.Progress == nil {
		delete(c.pending, m.ID)
	}
	c.mu.Unlock()
	switch {
	case pending == nil:
		closeAll(files)
	case m.Progress == nil:
		pending.reply <- reply{m, files}
	default:
		closeAll(files)
		if pending.progress != nil {
			putLatest(pending.progress, *m.Progress)
		}
	}
}

// putLatest makes room in a full channel by dropping its oldest value. Only one
// goroutine sends.
func putLatest[T any](ch chan T, v T) {
	for {
		select {
		case ch <- v:
			return
		default:
		}
		select {
		case <-ch:
		default:
		}
	}
}
