package control

import (
	"context"
	"errors"
	"os"
)

// ErrNotBegun is wrapped by Begin's errors when the guest has not run in the VMM that received it, and will not unless it
// is asked again: it may go on where it was.
var ErrNotBegun = errors.New("the guest has not begun to run there")

// Handover is how a guest goes from one VMM to another.
type Handover struct {
	// Stream is one end of a connected socket; the other VMM has the other end. It stays the caller's.
	Stream *os.File
	// SharedRAM: both VMMs map one file, and the stream has the state of devices only. Else it has all memory.
	SharedRAM bool
}

// Sender is a Machine whose guest can go on in another VMM.
type Sender interface {
	// Send hands a guest that runs over to a Receiver. The guest runs meanwhile, but for the last moment: stopped is
	// called when it has been stopped, and an error from it ends the handover. After success the Receiver has all of the
	// guest, and this VMM has let go of its disks and is stopped: Continue would have the guest go on here. After an
	// error the guest goes on here.
	Send(ctx context.Context, h Handover, stopped func() error) error
}

// Receiver is a Machine whose VMM was started to wait for a guest.
type Receiver interface {
	// Receive returns when all of the guest is there. Its vCPUs don't run.
	Receive(ctx context.Context, h Handover) error
	// Begin has them run. Whether they do is unknown after an error that does not wrap ErrNotBegun.
	Begin(ctx context.Context) error
}
