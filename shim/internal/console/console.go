// Package console is the outer end of a guest's serial console: it reads it all
// the time, whether or not someone looks, and gives it to any number of clients.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/shim/internal/logfile"
)

const (
	// Backlog is how many bytes of what was last printed are kept.
	Backlog = 16 << 10
	// maxQueue is how many bytes a client may be behind before it loses the oldest.
	maxQueue = 256 << 10
	// maxClients bounds descriptors and goroutines.
	maxClients = 64
	// inputStep is the most that is taken from a client at once; the rest waits
	// in its socket until the guest has read.
	inputStep = 512
)

// ErrTooMany is wrapped by Attach's error when there are too many clients.
var ErrTooMany = errors.New("too many clients on the console")

// Console is one serial console. Its methods may be called concurrently.
type Console struct {
	log  io.Writer
	tail *logfile.Tail

	input sync.Mutex // held while bytes go to the guest, so that clients' don't mix

	mu sync.Mutex
	// vmm takes what clients type; it is one of open, which all are read from.
	vmm     io.ReadWriteCloser
	open    map[io.ReadWriteCloser]struct{}
	clients map[*client]struct{}
	ended   bool
	done    chan struct{}
	writers sync.WaitGroup
}

// New returns the console and the VMM's end of it, which the caller passes on
// and closes. All that the guest prints goes to log, which must not block.
func New(log io.Writer) (*Console, *os.File, error) {
	own, other, err := unixsocket.Pair("console")
	if err != nil {
		return nil, nil, fmt.Errorf("console: %w", err)
	}
	return begin(own, log), other, nil
}

func begin(vmm io.ReadWriteCloser, log io.Writer) *Console {
	c := &Console{
		vmm:     vmm,
		open:    map[io.ReadWriteCloser]struct{}{vmm: {}},
		log:     log,
		tail:    logfile.NewTail(Backlog),
		clients: make(map[*client]struct{}),
		done:    make(chan struct{}),
	}
	go c.read(vmm)
	return c
}

// Replacement is a VMM that takes the place of the one that has the console.
type Replacement struct {
	// VMM is its end, which the caller passes on and closes.
	VMM *os.File

	console *Console
	own     io.ReadWriteCloser
}

// Replace returns the end of another VMM. What it prints is the console's from now on, beside what the present
// one does.
func (c *Console) Replace() (*Replacement, error) {
	own, other, err := unixsocket.Pair("console")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		own.Close()
		other.Close()
		return nil, fmt.Errorf("console: %w", os.ErrClosed)
	}
	c.open[own] = struct{}{}
	go c.read(own)
	return &Replacement{VMM: other, console: c, own: own}, nil
}

// Use has the other VMM read what clients type from now on.
func (r *Replacement) Use() {
	r.console.mu.Lock()
	defer r.console.mu.Unlock()
	r.console.vmm = r.own
}

// Drop closes the console's end of a VMM that does not take the other's place.
func (r *Replacement) Drop() error { return r.own.Close() }

// read takes what the guest prints until the VMM has gone, and ends the console if no other has it.
func (c *Console) read(vmm io.ReadWriteCloser) {
	buf := make([]byte, 4<<10)
	for {
		n, err := vmm.Read(buf)
		if n > 0 {
			_, _ = c.log.Write(buf[:n]) // it never fails, see logfile
			c.publish(buf[:n])
		}
		if err != nil {
			break
		}
	}
	vmm.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.open, vmm); len(c.open) > 0 {
		return
	}
	c.ended = true
	for cl := range c.clients {
		cl.finish()
	}
	close(c.done)
}

func (c *Console) publish(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.tail.Write(b) // it never fails
	for cl := range c.clients {
		cl.put(b)
	}
}

// Attach adds a client and returns its end of a stream, which is the caller's:
// reading gives up to backlog bytes of what was last printed and then all that
// comes, writing types. A client that reads too slowly loses the
// oldest output, and reads how much in its place.
func (c *Console) Attach(backlog int) (*os.File, error) {
	conn, other, err := unixsocket.Pair("console")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.clients) >= maxClients {
		conn.Close()
		other.Close()
		return nil, fmt.Errorf("%w: %d", ErrTooMany, maxClients)
	}
	cl := newClient(conn)
	cl.put(c.tail.Bytes(backlog))
	c.clients[cl] = struct{}{}
	c.writers.Add(1)
	go c.write(cl)
	if c.ended {
		cl.finish()
	} else {
		go c.feed(cl)
	}
	return other, nil
}

// write gives a client its output until it has gone or all is said.
func (c *Console) write(cl *client) {
	defer c.writers.Done()
	cl.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.clients, cl)
}

// feed gives the guest what a client types. While the guest doesn't read, the
// client waits, and nobody else but those who type.
func (c *Console) feed(cl *client) {
	buf := make([]byte, inputStep)
	for {
		n, err := cl.conn.Read(buf)
		if n > 0 && !c.put(buf[:n]) {
			return
		}
		if err != nil {
			if hungUp(cl.conn) {
				cl.finish()
			}
			return
		}
	}
}

// hungUp tells a peer that is gone from one that only types no more.
func hungUp(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	gone := true
	_ = raw.Control(func(fd uintptr) { // fails when closed, that is gone
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		gone = err != nil || poll[0].Revents&unix.POLLHUP != 0
	})
	return gone
}

// put types, into the VMM that takes the place of one that has gone meanwhile.
func (c *Console) put(b []byte) bool {
	c.input.Lock()
	defer c.input.Unlock()
	for {
		vmm := c.typed()
		n, err := vmm.Write(b)
		if err == nil {
			return true
		}
		if b = b[n:]; c.typed() == vmm {
			return false
		}
	}
}

// typed takes what clients type.
func (c *Console) typed() io.ReadWriteCloser {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.vmm
}

// Done is closed when the VMM's end is closed and all that it printed is logged.
func (c *Console) Done() <-chan struct{} { return c.done }

// Close ends the console even if the VMM's end is open. The clients are still given
// what was printed before; see Drain.
func (c *Console) Close() {
	c.mu.Lock()
	for vmm := range c.open {
		vmm.Close()
	}
	c.mu.Unlock()
	<-c.done
}

// Drain waits, after Close, until the clients have been given all that was printed, and
// cuts off those that have not read it when ctx ends.
func (c *Console) Drain(ctx context.Context) {
	defer context.AfterFunc(ctx, c.cut)()
	c.writers.Wait()
}

func (c *Console) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cl := range c.clients {
		cl.conn.Close()
	}
}
