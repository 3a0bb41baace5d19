package wire

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/vmlet/vmlet/shim"
)

// Bounds on a driver in a pod: a node has hundreds of pods, and anybody's.
const (
	// maxGuestMessage is how many bytes a message may have, maxGuestCall those in which the driver asks for
	// something.
	maxGuestMessage = 512 << 10
	maxGuestCall    = 32 << 10
	maxGuestAtOnce  = 8
	// freeMessage, in bytes, is what may be said without room for it.
	freeMessage = 4 << 10
	// decodeFactor is how much memory a message takes while it is decoded, times its size.
	decodeFactor = 4
	// guestFlow is how many bytes a second are read, after a burst of two of the largest messages.
	guestFlow = 1 << 20
	// guestTime is how long a message may take to arrive whole that has been given room.
	guestTime = 10 * time.Second
)

// guest bounds what the other side says.
type guest struct {
	room *semaphore.Weighted
	flow *rate.Limiter
}

// NewGuestPeer is NewPeer for a driver in somebody's pod: messages are smaller, have a rate, and are read only
// while the memory that they take, in bytes, is in room, which all such peers share.
func NewGuestPeer(conn *net.UnixConn, handle Handler, room *semaphore.Weighted) *Peer {
	return newPeer(conn, handle, &guest{room: room, flow: rate.NewLimiter(guestFlow, 2*maxGuestMessage)})
}

func (g *guest) receive(p *Peer, f *Frame) ([]*os.File, error) {
	var taken int64
	size := 0
	defer func() { g.room.Release(taken) }()
	files, err := p.wire.ReceiveIf(f, func(n int) error {
		size = n
		if n > maxGuestMessage {
			return fmt.Errorf("%w: a message of %d bytes, at most %d are allowed", shim.ErrMessage, n, maxGuestMessage)
		}
		if err := g.flow.WaitN(p.ctx, n); err != nil {
			return err
		}
		if n <= freeMessage {
			return nil
		}
		if err := g.room.Acquire(p.ctx, int64(n)*decodeFactor); err != nil {
			return err
		}
		taken = int64(n) * decodeFactor
		return p.wire.Conn().SetReadDeadline(time.Now().Add(guestTime))
	})
	if err == nil && taken > 0 {
		err = p.wire.Conn().SetReadDeadline(time.Time{})
	}
	if err == nil && f.Method != "" && size > maxGuestCall {
		err = fmt.Errorf("%w: a call of %d bytes, at most %d are allowed", shim.ErrMessage, size, maxGuestCall)
	}
	if err != nil {
		closeFiles(files)
		return nil, err
	}
	return files, nil
}
