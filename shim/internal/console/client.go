package console

import (
	"net"
	"sync"
)

// client is one reader of the console with what it has not been given yet.
type client struct {
	conn net.Conn

	mu       sync.Mutex
	queue    []byte
	finished bool          // nothing more comes
	wake     chan struct{} // room for one
}

func newClient(conn net.Conn) *client {
	return &client{conn: conn, wake: make(chan struct{}, 1)}
}

// put queues output and never waits. A client that is too far behind loses its
// connection: a gap in a console would go unnoticed.
func (cl *client) put(b []byte) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if len(cl.queue)+len(b) > maxQueue {
		cl.finished = true
		cl.queue = nil
		cl.conn.Close() // a write that waits fails, so does the next
	} else {
		cl.queue = append(cl.queue, b...)
	}
	cl.signal()
}

// finish ends the client when it has been given all.
func (cl *client) finish() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.finished = true
	cl.signal()
}

func (cl *client) signal() {
	select {
	case cl.wake <- struct{}{}:
	default:
	}
}

// run writes until the client has gone or is finished.
func (cl *client) run() {
	defer cl.conn.Close()
	for {
		b, more := cl.take()
		if len(b) > 0 {
			if _, err := cl.conn.Write(b); err != nil {
				return
			}
			continue
		}
		if !more {
			return
		}
		<-cl.wake
	}
}

// take empties the queue; the array goes with it, so that a burst costs nothing
// later.
func (cl *client) take() (b []byte, more bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	b, cl.queue = cl.queue, nil
	return b, !cl.finished
}
