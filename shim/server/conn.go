package server

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

const (
	// outbox is how many messages wait for an agent that does not read. One
	// that lets it fill up loses its connection: a save must not wait for it.
	outbox = 64
	// maxConns and maxRequests on each of them.
	maxConns    = 32
	maxRequests = 64
	// progressEvery is how often the agent hears how far one step of a request is.
	progressEvery = 100 * time.Millisecond
)

// conn is a connection from an agent.
type conn struct {
	s    *Server
	wire *shim.Wire
	out  chan outgoing
	done chan struct{} // closed when it has ended

	requests chan struct{} // has one value for each under way
	greeted  bool          // of the reader
	closing  sync.Once
}

// outgoing is a message with its file, or the end.
type outgoing struct {
	shim.Message
	file *os.File
	end  bool
}

// work is the part of a request that may take long.
type work func() (body any, err error)

// serve takes a connection in.
func (s *Server) serve(socket *net.UnixConn) {
	c := &conn{
		s:        s,
		wire:     shim.NewWire(socket),
		out:      make(chan outgoing, outbox),
		done:     make(chan struct{}),
		requests: make(chan struct{}, maxRequests),
	}
	s.mu.Lock()
	if len(s.conns) >= maxConns {
		s.mu.Unlock()
		s.o.Log.Warn("connection refused: too many", "connections", maxConns)
		c.wire.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.greeted = true
	s.mu.Unlock()
	go c.write()
	go c.read()
}

func (c *conn) close() { c.closing.Do(func() { c.wire.Close() }) }

// read takes requests until the connection ends.
func (c *conn) read() {
	err := c.receive()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.s.o.Log.Warn("connection with an agent ended", "error", err)
	}
	c.close()
	close(c.done)
	c.s.lost(c)
}

func (c *conn) receive() error {
	for {
		var r shim.Request
		files, err := c.wire.Receive(&r)
		if err != nil {
			return err
		}
		if len(files) != r.Files {
			c.reply(r.ID, nil, fault.New(shim.CodeInvalid, "files", "%d descriptors came with a request that says %d", len(files), r.Files))
			closeFiles(files)
			continue
		}
		c.handle(r, files)
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// handle does the first part of a request in the order of their coming, and the
// rest beside the others.
func (c *conn) handle(r shim.Request, files []*os.File) {
	select {
	case c.requests <- struct{}{}:
	default:
		closeFiles(files)
		c.reply(r.ID, nil, fault.Precondition("more than %d requests at a time on one connection", maxRequests))
		return
	}
	if !c.s.admit() { // its caller finds the connection closed in a moment
		closeFiles(files)
		<-c.requests
		return
	}
	rest, err := c.dispatch(r, files)
	if err != nil {
		c.s.o.Log.Info("request refused", "op", r.Op, "error", err)
		closeFiles(files)
		c.reply(r.ID, nil, err)
		c.finished()
		return
	}
	go func() {
		defer c.finished()
		defer closeFiles(files)
		body, err := rest()
		c.reply(r.ID, body, err)
	}()
}

func (c *conn) finished() {
	<-c.requests
	c.s.requests.Done()
}

func (c *conn) dispatch(r shim.Request, files []*os.File) (work, error) {
	if r.Op != shim.OpHello && !c.greeted {
		return nil, fault.New(shim.CodeVersion, "", "%s before hello", r.Op)
	}
	s := c.s
	switch r.Op {
	case shim.OpHello:
		return decoded(r, c.hello)
	case shim.OpDescribe:
		return decoded(withArgs(r), s.describe)
	case shim.OpImage:
		return s.beginOpenImage(files)
	case shim.OpLaunch:
		return decoded(r, func(args *shim.Launch) (work, error) { return s.beginLaunch(c, r.ID, args, files) })
	case shim.OpSave:
		return decoded(r, func(args *shim.Save) (work, error) { return s.beginSave(c, r.ID, args, files) })
	case shim.OpCommit:
		return decoded(r, func(args *shim.Commit) (work, error) { return s.beginCommit(c, args) })
	case shim.OpAbort:
		return s.beginAbort(c)
	case shim.OpResume:
		return s.beginResume(c)
	case shim.OpStop:
		return decoded(r, s.beginStop)
	case shim.OpKill:
		return decoded(withArgs(r), s.beginKill)
	case shim.OpAttach:
		return decoded(r, func(args *shim.Attach) (work, error) { return s.beginAttach(c, args, files) })
	case shim.OpDetach:
		return decoded(r, func(args *shim.Detach) (work, error) { return s.beginDetach(c, args) })
	case shim.OpConsole:
		return decoded(r, s.attach)
	case shim.OpDisplay:
		return decoded(r, s.beginDisplay)
	case shim.OpFreeze:
		return decoded(r, s.beginFreeze)
	case shim.OpThaw:
		return s.beginThaw()
	case shim.OpProbe:
		return decoded(r, s.beginProbe)
	case shim.OpReboot:
		return decoded(r, s.beginReboot)
	case shim.OpDial:
		return decoded(r, s.dial)
	case shim.OpRelease:
		return decoded(withArgs(r), s.beginRelease)
	}
	return nil, fault.New(shim.CodeInvalid, "op", "%q is unknown to this shim", r.Op)
}

// withArgs is for requests that had none in an earlier version.
func withArgs(r shim.Request) shim.Request {
	if len(r.Args) == 0 {
		r.Args = json.RawMessage("{}")
	}
	return r
}

func decoded[T any](r shim.Request, begin func(*T) (work, error)) (work, error) {
	var args T
	if err := json.Unmarshal(r.Args, &args); err != nil {
		return nil, fault.New(shim.CodeInvalid, "args", "of %s: %v", r.Op, err)
	}
	return begin(&args)
}

func (c *conn) hello(args *shim.Hello) (work, error) {
	if args.Major != shim.VersionMajor {
		return nil, fault.New(shim.CodeVersion, "", "the agent speaks version %d.%d of the protocol, this shim %d.%d",
			args.Major, args.Minor, shim.VersionMajor, shim.VersionMinor)
	}
	c.greeted = true
	welcome := c.s.welcome()
	return func() (any, error) { return welcome, nil }, nil
}

// reply answers a request. A body that is a file goes as a descriptor.
func (c *conn) reply(id uint64, body any, err error) {
	m := outgoing{Message: shim.Message{ID: id}}
	switch body := body.(type) {
	case *os.File:
		m.file, m.Files = body, 1
	case nil:
	default:
		b, encodeErr := json.Marshal(body)
		m.Body, err = b, errors.Join(err, encodeErr)
	}
	if err != nil {
		m.Error = fault.Of(err)
	}
	c.send(m)
}

func (c *conn) event(e shim.Event) { c.send(outgoing{Message: shim.Message{Event: &e}}) }

// progress returns what tells how far a request is, if the agent keeps up: each step's
// beginning and end, and between them once in progressEvery. Each message wakes the agent and
// its client, which need processors that the work itself could have.
func (c *conn) progress(id uint64) func(shim.Progress) {
	var mu sync.Mutex
	var step string
	var told time.Time
	return func(p shim.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Step == step && p.Done < p.Total && time.Since(told) < progressEvery || len(c.out) >= outbox/2 {
			return
		}
		step, told = p.Step, time.Now()
		c.send(outgoing{Message: shim.Message{ID: id, Progress: &p}})
	}
}

// flush closes the connection after all that was sent before.
func (c *conn) flush() { c.send(outgoing{end: true}) }

// send never waits.
func (c *conn) send(m outgoing) {
	select {
	case c.out <- m:
	default:
		c.close()
		if m.file != nil {
			m.file.Close()
		}
	}
}

// write sends what is queued. When the agent has gone it sends nothing more, but
// leaves the connection to the reader: a commit may have come before the end.
func (c *conn) write() {
	dead := false
	for {
		select {
		case m := <-c.out:
			if !dead {
				dead = !c.put(m)
			}
			if m.file != nil {
				m.file.Close()
			}
		case <-c.done:
			return
		}
	}
}

func (c *conn) put(m outgoing) bool {
	if m.end {
		// The agent still reads what came before, and then closes its end.
		return c.wire.Conn().CloseWrite() == nil
	}
	var files []*os.File
	if m.file != nil {
		files = append(files, m.file)
	}
	return c.wire.Send(m.Message, files...) == nil
}
