package driver

import (
	"net"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
)

// follow reads the VMM's events to their end, and passes them on. What the last ones
// say of how it ended is not gone by: the VMM doesn't wait until they are written, and
// says the same of a guest that has powered off and of a VM that was taken away.
func (m *machine) follow() {
	defer func() {
		m.mu.Lock()
		m.ending.Told, m.ending.Shutdown = m.told, !m.told
		m.mu.Unlock()
		close(m.ended)
	}()
	events := chapi.NewEvents(m.link.Events, chapi.DefaultMaxEvent)
	for {
		event, err := events.Next()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.ending.Panicked = chvm.Panicked(m.ending.Panicked, event)
		m.mu.Unlock()
		m.hub.publish(event, time.Now())
	}
}

const (
	// maxClients of a hub: there is one agent, and perhaps another that takes over.
	maxClients = 8
	// queue is how many lines wait for a slow client.
	queue = 256
	// writeTime is how long a client may take for a line.
	writeTime = 10 * time.Second
)

// hub passes events on to agents, see chvm.EventsSocket.
type hub struct {
	listener net.Listener

	mu      sync.Mutex
	clients map[*client]struct{}
	// state is what a client is told that was not there, but for what it missed.
	state  chvm.State
	closed bool
}

// client is one agent's connection.
type client struct {
	conn    net.Conn
	lines   chan []byte
	dropped int
}

func newHub(listener net.Listener) *hub {
	h := &hub{listener: listener, clients: make(map[*client]struct{})}
	go h.accept()
	return h
}

func (h *hub) accept() {
	for {
		conn, err := h.listener.Accept()
		if err != nil {
			return
		}
		h.add(conn)
	}
}

func (h *hub) add(conn net.Conn) {
	c := &client{conn: conn, lines: make(chan []byte, queue)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.clients) >= maxClients {
		conn.Close()
		return
	}
	h.clients[c] = struct{}{}
	state := h.state
	c.put(chvm.Frame{State: &state})
	go h.write(c)
	go h.watch(c)
}

// watch ends a client that hangs up; it has nothing to say.
func (h *hub) watch(c *client) {
	_, _ = c.conn.Read(make([]byte, 1))
	h.remove(c)
}

func (h *hub) write(c *client) {
	defer c.conn.Close()
	defer h.remove(c)
	for line := range c.lines {
		c.conn.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := c.conn.Write(line); err != nil {
			return
		}
	}
}

func (h *hub) remove(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(c)
}

// drop ends a client, once; h.mu is held.
func (h *hub) drop(c *client) {
	if _, there := h.clients[c]; !there {
		return
	}
	delete(h.clients, c)
	close(c.lines) // write sends what is queued and closes the connection
}

func (h *hub) publish(event chapi.Event, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Panicked, h.state.BootTried = chvm.Panicked(h.state.Panicked, event), chvm.BootTried(h.state.BootTried, event)
	frame := chvm.Frame{Event: &chvm.Event{Time: now, Source: event.Source, Name: event.Name, Properties: event.Properties}}
	for c := range h.clients {
		// An event goes only after the word of a loss before it.
		if c.dropped > 0 {
			state := h.state
			if state.Dropped = c.dropped; c.put(chvm.Frame{State: &state}) {
				c.dropped = 0
			}
		}
		if c.dropped > 0 || !c.put(frame) {
			c.dropped++
		}
	}
}

// put queues a line if there is room.
func (c *client) put(frame chvm.Frame) bool {
	line, err := frame.Line()
	if err != nil {
		return false
	}
	select {
	case c.lines <- line:
		return true
	default:
		return false
	}
}

// close ends all clients when they have what was published.
func (h *hub) close() error {
	err := h.listener.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for c := range h.clients {
		h.drop(c)
	}
	return err
}
