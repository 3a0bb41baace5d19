package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/shim/internal/rundir"
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

// eventQueue is how many events wait for a slow reader. A shim has two. What one may have
// is bounded: see bounds.go.
const eventQueue = 4

// Client is an agent's connection to one shim. Its methods may be called
// concurrently. A request that the shim refused is an *Error.
type Client struct {
	wire    *Wire
	pod     *podRoom // nil: the shim is no pod's
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
	op       Op
	into     any           // what the reply's body is decoded into; nil: into nothing
	reply    chan reply    // room for the one
	progress chan Progress // room for the latest; nil: nobody asks
	left     bool          // nobody takes the reply any more; guarded by Client.mu
}

// reply is a reply whose body is decoded already: nothing else of it is kept.
type reply struct {
	err   error
	files []*os.File
	held  *share
}

// drop is for a reply that nobody takes.
func (r reply) drop() {
	closeAll(r.files)
	r.held.release()
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
	return newClient(ctx, conn, nil)
}

func newClient(ctx context.Context, conn *net.UnixConn, pod *podRoom) (*Client, error) {
	c := &Client{
		wire:    NewWire(conn),
		pod:     pod,
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
	welcome, err := ask[Welcome](ctx, c, OpHello, Hello{Major: VersionMajor, Minor: VersionMinor})
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
	if c.pod != nil {
		c.pod.end() // the reader may wait for room
	}
	err := c.wire.Close()
	<-c.done
	return err
}

// do sends a request and waits for its reply, whose body is decoded into a value.
func (c *Client) do(ctx context.Context, op Op, args, into any) (reply, error) {
	pending, err := c.send(ctx, args, nil, &call{op: op, into: into})
	if err != nil {
		return reply{}, err
	}
	defer c.forget(pending)
	return c.finish(ctx, pending, nil)
}

func (c *Client) send(ctx context.Context, args any, files []*os.File, pending *call) (*call, error) {
	op := pending.op
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
	pending.reply = make(chan reply, 1)
	if err := c.register(&request, pending); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := c.wire.Send(request, files...); err != nil {
		c.forget(pending)
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
func (c *Client) finish(ctx context.Context, pending *call, progress func(Progress)) (reply, error) {
	r, err := c.await(ctx, pending, progress)
	if err != nil {
		return reply{}, fmt.Errorf("%s: %w", pending.op, err)
	}
	if r.err != nil {
		r.drop()
		return reply{}, r.err
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
func (c *Client) forget(pending *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, pending.id)
	pending.left = true
	select {
	case r := <-pending.reply:
		r.drop()
	default:
	}
}

// deliver hands a reply to its caller, if that still waits.
func (c *Client) deliver(pending *call, r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pending.left {
		r.drop()
		return
	}
	pending.reply <- r // has room for the one
}

// read is the connection's one reader; it waits for nobody but the shim.
func (c *Client) read() {
	err := c.readMessages()
	c.wire.Close()
	if c.pod != nil {
		c.pod.end()
	}
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
		if err := c.readMessage(); err != nil {
			return err
		}
	}
}

// readMessage holds room for a message until it is decoded, and what is kept of it cut.
func (c *Client) readMessage() error {
	var m Message
	var held *share
	files, err := c.wire.receive(&m, func(size int) (err error) {
		held, err = c.admit(size)
		return err
	})
	if err == nil && len(files) != m.Files {
		closeAll(files)
		err = fmt.Errorf("%w: %d files came with a message that says %d", ErrMessage, len(files), m.Files)
	}
	if err != nil {
		held.release()
		return err
	}
	if held != nil {
		_ = c.wire.Conn().SetReadDeadline(time.Time{}) // fails if the connection has ended, which is found next
	}
	c.dispatch(&m, files, held)
	return nil
}

func (c *Client) dispatch(m *Message, files []*os.File, held *share) {
	if m.Event != nil {
		m.Event.bound(c.pod != nil)
		putLatest(c.events, *m.Event)
		reply{files: files, held: held}.drop()
		return
	}
	c.mu.Lock()
	pending := c.pending[m.ID]
	if m.Progress == nil {
		delete(c.pending, m.ID)
	}
	c.mu.Unlock()
	r := reply{files: files, held: held}
	switch {
	case pending == nil:
		r.drop()
	case m.Progress == nil:
		r.err = pending.decode(m, c.pod != nil)
		c.deliver(pending, r)
	default:
		r.drop()
		if pending.progress != nil {
			m.Progress.Step = clip(m.Progress.Step, maxField)
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
