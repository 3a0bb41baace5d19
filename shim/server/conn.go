package server

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
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

// host is the shim as its connections see it.
type host interface {
	// admit counts a request, unless the shim ends; answered is its counterpart.
	admit() bool
	answered()
	dispatch(c *conn, r shim.Request, files []*os.File) (work, error)
	// lost: the connection has ended.
	lost(c *conn)
}

// conn is a connection from an agent.
type conn struct {
	host host
	log  *slog.Logger
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

func newConn(socket *net.UnixConn, host host, log *slog.Logger) *conn {
	return &conn{
		host: host, log: log,
		wire:     shim.NewWire(socket),
		out:      make(chan outgoing, outbox),
		done:     make(chan struct{}),
		requests: make(chan struct{}, maxRequests),
	}
}

func (c *conn) close() { c.closing.Do(func() { c.wire.Close() }) }

// read takes requests until the connection ends.
func (c *conn) read() {
	err := c.receive()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.log.Warn("connection with an agent ended", "error", err)
	}
	c.close()
	close(c.done)
	c.host.lost(c)
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
	if !c.host.admit() { // its caller finds the connection closed in a moment
		closeFiles(files)
		<-c.requests
		return
	}
	rest, err := c.host.dispatch(c, r, files)
	if err != nil {
		c.log.Info("request refused", "op", r.Op, "error", err)
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
	c.host.answered()
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
