package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/shim"
)

// Bounds on what the other side may do.
const (
	// MaxMessage is how many bytes a message may have: a description of a VMM under three
	// hypervisors has some 200 KiB.
	MaxMessage = 4 << 20
	// MaxAtOnce is how many calls of the other side are served at a time; one more is
	// answered with an error.
	MaxAtOnce = 64
	// CallTime bounds a call whose caller sets no earlier end.
	CallTime = time.Minute
	// sendTime bounds how long the other side may leave a message unread.
	sendTime = 10 * time.Second
	// Settling is how long the answer to a cancelled call is waited for, of those calls after
	// which the caller must know that nothing more happens.
	Settling = 5 * time.Second
)

// Frame is a message on the wire.
type Frame struct {
	ID     uint32          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Cancel bool            `json:"cancel,omitempty"`
}

// Call is a call of the other side's.
type Call struct {
	Method string
	Body   json.RawMessage
	// Files came with it, and are closed when it has been answered, but for those that
	// Keep took.
	Files []*os.File
}

// Decode reads the call's body.
func (c *Call) Decode(v any) error { return decode(c.Method, c.Body, v) }

func decode(method string, body json.RawMessage, v any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return Errorf(CodeInvalid, "%s: %v", method, err)
	}
	return nil
}

// Keep takes the file of that index from the call; it is the caller's to close.
func (c *Call) Keep(i int) (*os.File, error) {
	if i >= len(c.Files) || c.Files[i] == nil {
		return nil, Errorf(CodeInvalid, "%s: descriptor %d is missing", c.Method, i)
	}
	f := c.Files[i]
	c.Files[i] = nil
	return f, nil
}

// Handler answers a call. The files go with the answer and are closed then. It is called in a
// goroutine of its own; for a message without a number in the order of arrival, and must not
// block then.
type Handler func(ctx context.Context, c *Call) (answer any, files []*os.File, err error)

// Peer is one end of a connection. Its methods may be called concurrently.
type Peer struct {
	wire   *shim.Wire
	handle Handler
	guest  *guest // nil: the other side has the bounds above alone

	sending chan struct{} // held while a message is sent
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan<- reply
	running map[uint32]context.CancelFunc
	calls   sync.WaitGroup
}

type reply struct {
	body  json.RawMessage
	files []*os.File
	err   error
}

// NewPeer serves a connection, which is the Peer's from now on, until it ends. A nil handle
// answers no calls.
func NewPeer(conn *net.UnixConn, handle Handler) *Peer { return newPeer(conn, handle, nil) }

func newPeer(conn *net.UnixConn, handle Handler, g *guest) *Peer {
	if handle == nil {
		handle = func(_ context.Context, c *Call) (any, []*os.File, error) {
			return nil, nil, Errorf(CodeUnsupported, "%.40q is not served here", c.Method)
		}
	}
	p := &Peer{
		wire: shim.NewWire(conn), handle: handle, guest: g, sending: make(chan struct{}, 1),
		waiting: make(map[uint32]chan<- reply), running: make(map[uint32]context.CancelFunc),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	go p.read()
	return p
}

// Done is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} { return p.ctx.Done() }

// Err says why it has ended; nil: it has not.
func (p *Peer) Err() error {
	if p.ctx.Err() == nil {
		return nil
	}
	return context.Cause(p.ctx)
}

// Close ends the connection; calls that are under way fail.
func (p *Peer) Close() error {
	p.end(fmt.Errorf("%w: closed", ErrLost))
	return nil
}

// Wait returns when no call of the other side is being answered any more.
func (p *Peer) Wait() { p.calls.Wait() }

// end keeps the first reason.
func (p *Peer) end(why error) {
	p.cancel(why)
	p.wire.Close()
}

// Call calls a method of the other side; answer may be nil. The files sent stay the caller's,
// those returned become the caller's. It returns at the end of ctx, or of CallTime.
func (p *Peer) Call(ctx context.Context, method string, request, answer any, files ...*os.File) ([]*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	return p.CallLong(ctx, 0, method, request, answer, files...)
}

// CallLong is Call that lasts as long as ctx allows. When ctx ends the answer is waited for
// for the time that settle says; if there is none the connection ends.
func (p *Peer) CallLong(ctx context.Context, settle time.Duration, method string, request, answer any, files ...*os.File) ([]*os.File, error) {
	id, answered := p.begin()
	defer p.forget(id)
	if err := p.send(ctx, Frame{ID: id, Method: method}, request, files); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	r, err := p.await(ctx, settle, id, answered)
	if err == nil {
		err = r.err
	}
	if err == nil && answer != nil {
		err = decode(method, r.body, answer)
	}
	if err != nil {
		closeFiles(r.files)
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return r.files, nil
}

func (p *Peer) begin() (uint32, <-chan reply) {
	answered := make(chan reply, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.waiting[p.last] = answered
	return p.last, answered
}

// forget drops what has been answered and not been taken.
func (p *Peer) forget(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

func (p *Peer) await(ctx context.Context, settle time.Duration, id uint32, answered <-chan reply) (reply, error) {
	select {
	case r := <-answered:
		return r, nil
	case <-p.ctx.Done():
		return p.late(answered)
	case <-ctx.Done():
	}
	_ = p.send(context.Background(), Frame{ID: id, Cancel: true}, nil, nil)
	if settle > 0 {
		timer := time.NewTimer(settle)
		defer timer.Stop()
		select {
		case r := <-answered:
			return r, nil
		case <-p.ctx.Done():
			return p.late(answered)
		case <-timer.C:
			p.end(fmt.Errorf("%w: it did not end a call %v after it was to", ErrLost, settle))
		}
	}
	select {
	case r := <-answered: // just now
		if r.err == nil {
			return r, nil
		}
		closeFiles(r.files)
	default:
	}
	return reply{}, context.Cause(ctx)
}

// late takes an answer that came just before the connection's end.
func (p *Peer) late(answered <-chan reply) (reply, error) {
	select {
	case r := <-answered:
		return r, nil
	default:
		return reply{}, context.Cause(p.ctx)
	}
}

// Notify sends what nobody answers.
func (p *Peer) Notify(ctx context.Context, method string, request any) error {
	return p.send(ctx, Frame{Method: method}, request, nil)
}

// send ends the connection when the other side doesn't read within sendTime: half a message may have gone. What
// has begun is not cut short by the end of ctx, for which others' calls would pay.
func (p *Peer) send(ctx context.Context, f Frame, body any, files []*os.File) error {
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		if len(b) > MaxMessage-1024 {
			return Errorf(CodeInternal, "a message of %d bytes, at most %d are allowed", len(b), MaxMessage)
		}
		f.Body = b
	}
	select {
	case p.sending <- struct{}{}:
		defer func() { <-p.sending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	if ctx.Err() != nil { // before a byte of it is sent, so that the connection stays good
		return context.Cause(ctx)
	}
	err := p.wire.Conn().SetWriteDeadline(time.Now().Add(sendTime))
	if err == nil {
		err = p.wire.Send(f, files...)
	}
	if err != nil {
		p.end(fmt.Errorf("%w: it does not take messages: %w", ErrLost, err))
		return context.Cause(p.ctx)
	}
	return nil
}

// read takes messages until the connection ends.
func (p *Peer) read() {
	for {
		var f Frame
		files, err := p.receive(&f)
		if err == nil {
			err = p.take(&f, files)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it has closed it")
			}
			p.end(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
	}
}

func (p *Peer) receive(f *Frame) ([]*os.File, error) {
	if p.guest != nil {
		return p.guest.receive(p, f)
	}
	return p.wire.ReceiveAtMost(f, MaxMessage)
}

// most is how many calls of the other side are served at a time.
func (p *Peer) most() int {
	if p.guest != nil {
		return maxGuestAtOnce
	}
	return MaxAtOnce
}

// take takes over the files.
func (p *Peer) take(f *Frame, files []*os.File) error {
	switch {
	case f.Cancel:
		closeFiles(files)
		p.mu.Lock()
		defer p.mu.Unlock()
		if cancel := p.running[f.ID]; cancel != nil {
			cancel()
		}
		return nil
	case f.Method == "":
		return p.answered(f, files)
	case f.ID == 0:
		c := &Call{Method: f.Method, Body: f.Body, Files: files}
		_, more, _ := p.handle(p.ctx, c)
		closeFiles(c.Files)
		closeFiles(more)
		return nil
	}
	return p.called(f, files)
}

func (p *Peer) answered(f *Frame, files []*os.File) error {
	p.mu.Lock()
	answered, waits := p.waiting[f.ID]
	delete(p.waiting, f.ID)
	made := f.ID != 0 && f.ID <= p.last
	p.mu.Unlock()
	if !waits {
		closeFiles(files)
		if !made {
			return fmt.Errorf("%w: an answer to call %d, which was not made", shim.ErrMessage, f.ID)
		}
		return nil // its caller waits no more
	}
	r := reply{body: f.Body, files: files}
	if f.Error != nil {
		f.Error.Message = clip(f.Error.Message)
		r.err = f.Error
	}
	answered <- r
	return nil
}

func clip(s string) string {
	if len(s) > MaxMessageText {
		return s[:MaxMessageText] + " …"
	}
	return s
}

func (p *Peer) called(f *Frame, files []*os.File) error {
	p.mu.Lock()
	_, twice := p.running[f.ID]
	full := len(p.running) >= p.most()
	if twice || full {
		p.mu.Unlock()
		closeFiles(files)
		if twice {
			return fmt.Errorf("%w: call %d is under way already", shim.ErrMessage, f.ID)
		}
		return fmt.Errorf("%w: more than %d calls at once", shim.ErrMessage, p.most())
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.running[f.ID] = cancel
	p.calls.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.calls.Done()
		defer cancel()
		p.serve(ctx, f, files)
	}()
	return nil
}

func (p *Peer) serve(ctx context.Context, f *Frame, files []*os.File) {
	c := &Call{Method: f.Method, Body: f.Body, Files: files}
	answer, more, err := p.handle(ctx, c)
	closeFiles(c.Files)
	p.mu.Lock()
	delete(p.running, f.ID)
	p.mu.Unlock()
	out := Frame{ID: f.ID}
	if err != nil {
		out.Error = asError(err)
		answer = nil
	}
	// It fails only with the connection, or as the answer is too large.
	if err := p.send(p.ctx, out, answer, more); err != nil && p.Err() == nil {
		out.Error = asError(err)
		_ = p.send(p.ctx, out, nil, nil)
	}
	closeFiles(more)
}

// asError gives an error that has no code that of contexts, or CodeInternal.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return &Error{Code: e.Code, Message: clip(err.Error()), Faults: e.Faults}
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(CodeDeadline, "%s", clip(err.Error()))
	case errors.Is(err, context.Canceled):
		return Errorf(CodeCanceled, "%s", clip(err.Error()))
	}
	return Errorf(CodeInternal, "%s", clip(err.Error()))
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
