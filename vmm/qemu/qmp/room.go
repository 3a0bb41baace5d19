package qmp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	// decodeFactor is how much memory a long message takes while it is read and decoded,
	// times the bound on messages.
	decodeFactor = 4
	// longTime is how long such a message may take to arrive whole.
	longTime = 10 * time.Second
	// flow is how many bytes a second are read, after a burst of two of the longest
	// messages: QEMU has some hundred KiB to say in a quarter of a minute.
	flow = 1 << 20
)

// WithRoom is for a peer that may say anything, as one in a pod: a message that doesn't
// fit into the resting buffer is read only while the memory that it takes, in bytes, is
// in room, which any number of clients may share, and has ten seconds to arrive. Its
// messages are read at a bounded rate, and have at most so many values, as each
// takes more memory than text; a large event is dropped.
func WithRoom(room *semaphore.Weighted, values int) Option {
	return func(c *Client) { c.room, c.maxValues = room, values }
}

// guest is a connection to a peer that WithRoom is for.
type guest struct {
	conn net.Conn
	room *semaphore.Weighted
	cost int64 // of a long message, in bytes
	pace *rate.Limiter
	life context.Context // until Close
	end  context.CancelFunc
}

func newGuest(conn net.Conn, room *semaphore.Weighted, most int) *guest {
	g := &guest{conn: conn, room: room, cost: int64(most) * decodeFactor, pace: rate.NewLimiter(flow, 2*most)}
	g.life, g.end = context.WithCancel(context.Background())
	return g
}

// long waits for room for a long message after its beginning was read.
func (g *guest) long() (*share, error) {
	if err := g.room.Acquire(g.life, g.cost); err != nil {
		return nil, net.ErrClosed
	}
	s := &share{room: g.room, bytes: g.cost}
	if err := g.conn.SetReadDeadline(time.Now().Add(longTime)); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// arrived is called when a message was read whole.
func (g *guest) arrived(size int, held *share) error {
	if held != nil {
		if err := g.conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	if err := g.pace.WaitN(g.life, min(size, g.pace.Burst())); err != nil {
		return fmt.Errorf("%w: %w", net.ErrClosed, err)
	}
	return nil
}

// share is a part of the room. A nil one is none.
type share struct {
	room  *semaphore.Weighted
	bytes int64
	once  sync.Once
}

func (s *share) release() {
	if s != nil {
		s.once.Do(func() { s.room.Release(s.bytes) })
	}
}
