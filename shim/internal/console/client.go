package console

import (
	"fmt"
	"net"
	"sync"
)

// client is one reader of the console with what it has not been given yet.
type client struct {
	conn net.Conn

	mu       sync.Mutex
	queue    []byte
	lost     int           // bytes that were dropped before the queue
	finished bool          // nothing more comes
	wake     chan struct{} // room for one
}

func newClient(conn net.Conn) *client {
	return &client{conn: conn, wake: make(chan struct{}, 1)}
}

// put queues output and never waits. A client that is too far behind loses the oldest.
func (cl *client) put(b []byte) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if over := len(cl.queue) + len(b) - maxQueue; over > 0 {
		over = min(len(cl.queue), max(over, maxQueue/2)) // not at each byte that comes
		cl.lost += over
		cl.queue = append([]byte(nil), cl.queue[over:]...)
	}
	cl.queue = append(cl.queue, b...)
	cl.signal()
}

// gap is the line that a client reads in the place of what it has lost.
func gap(lost int) string {
	return fmt.Sprintf("\r\n[%d bytes of the console were dropped here, as they were not read in time]\r\n", lost)
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
	if cl.lost > 0 {
		b = append([]byte(gap(cl.lost)), b...)
		cl.lost = 0
	}
	return b, !cl.finished
}
