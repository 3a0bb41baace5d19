package driver

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// follow reads the VMM's events to their end, and passes them on.
func (m *machine) follow() {
	defer close(m.ended)
	events := chapi.NewEvents(m.link.Events, maxEvent)
	for {
		event, err := events.Next()
		if err != nil {
			if err != io.EOF && !errors.Is(err, os.ErrClosed) {
				m.link.Log.Warn("cloud-hypervisor's events are lost from now on", "error", err)
				_, _ = io.Copy(io.Discard, m.link.Events) // its end tells the VMM's
			}
			return
		}
		if event.Source == chapi.SourceVM {
			m.mu.Lock()
			m.deleted = event.Name == chapi.EventDeleted
			m.mu.Unlock()
		}
		m.hub.publish(event, time.Now())
	}
}

const (
	// maxEvent is the longest event, in bytes, that a pipe takes whole: PIPE_BUF.
	maxEvent = 4096
	// maxClients of a hub: there is one agent, and perhaps another that takes over.
	maxClients = 8
	// queue is how many lines wait for a slow client.
	queue = 256
	// writeTime is how long a client may take for a line.
	writeTime = 10 * time.Second
	// eventDeviceRemoved of the VM: vmm/src/device_manager.rs.
	eventDeviceRemoved = "device-removed"
	// acceptPause is between tries to let a client in.
	acceptPause = time.Second
)

// hub passes events on to agents, see wire.EventsSocket.
type hub struct {
	listener net.Listener

	mu      sync.Mutex
	clients map[*client]struct{}
	// state is what a client gets that was not there, but for what it missed.
	state  wire.State
	closed bool
	// removed is closed when a device may have gone, and replaced.
	removed chan struct{}
}

// client is one agent's connection.
type client struct {
	conn    net.Conn
	lines   chan []byte
	dropped int
}

func newHub(listener net.Listener) *hub {
	h := &hub{listener: listener, clients: make(map[*client]struct{}), removed: make(chan struct{})}
	go h.accept()
	return h
}

func (h *hub) accept() {
	for {
		conn, err := h.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, most likely: those who wait are served later
			time.Sleep(acceptPause)
		default:
			h.add(conn)
		}
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
	c.put(lineOf(wire.Frame{State: &h.state}))
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

// publish passes an event on, unless it is of a driver in the guest, which may have the
// VMM tell of it as often as it likes and which means nothing to an agent.
func (h *hub) publish(event chapi.Event, now time.Time) {
	if event.Source == chapi.SourceVirtioDevice {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Panicked, h.state.BootTried = wire.Panicked(h.state.Panicked, event), wire.BootTried(h.state.BootTried, event)
	if event.Source == chapi.SourceVM && (event.Name == eventDeviceRemoved || event.Name == chapi.EventRebooted) {
		close(h.removed)
		h.removed = make(chan struct{})
	}
	line := lineOf(wire.Frame{Event: &wire.Event{Time: now, Source: event.Source, Name: event.Name, Properties: event.Properties}})
	for c := range h.clients {
		// An event goes only after the word of a loss before it.
		if c.dropped > 0 {
			state := h.state
			if state.Dropped = c.dropped; c.put(lineOf(wire.Frame{State: &state})) {
				c.dropped = 0
			}
		}
		if c.dropped > 0 || !c.put(line) {
			c.dropped++
		}
	}
}

// removal is closed when a device may have gone: one that the guest was asked for, and
// has let go, or has lost by a reset.
func (h *hub) removal() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removed
}

// now is what the events have reported.
func (h *hub) now() wire.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// lineOf is nil for a frame that is too long to be sent.
func lineOf(frame wire.Frame) []byte {
	line, err := frame.Line()
	if err != nil {
		return nil
	}
	return line
}

// put queues a line if there is one, and room for it.
func (c *client) put(line []byte) bool {
	if line == nil {
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
