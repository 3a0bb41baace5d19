package control

import (
	"context"
	"errors"
	"os"

	"github.com/vmlet/vmlet/shim"
)

// ErrNoGuestAgent is wrapped by a GuestAgent's errors: none in the guest answers.
var ErrNoGuestAgent = errors.New("no guest agent answers")

// GuestAgent is a Machine whose VMM has a channel to an agent in the guest. Nothing that
// comes from there is trusted.
type GuestAgent interface {
	// Freeze has it freeze the guest's file systems. That they are frozen is no error.
	Freeze(ctx context.Context) error
	// Thaw ends that. That they are not frozen is no error.
	Thaw(ctx context.Context) error
	// Ping returns when it has answered, or at once if the guest is paused.
	Ping(ctx context.Context) error
	// Exec runs a program of the guest's, and waits for its end.
	Exec(ctx context.Context, command []string) (*shim.Probed, error)
}

// Rebooter is a Machine whose guest can be asked to reboot.
type Rebooter interface {
	// Reboot has its agent reboot it. With button the power button is pressed if that
	// fails, and the guest is reset once it is off, instead of ending. It returns when the
	// guest has been asked.
	Reboot(ctx context.Context, button bool) error
}

// Displayer is a Machine whose VMM shows the guest's display by VNC.
type Displayer interface {
	// AddDisplay gives the VMM a socket with a client at its other end. The file stays the
	// caller's.
	AddDisplay(ctx context.Context, client *os.File) error
}

// Credentialer is a Machine whose guest's agent takes keys and passwords.
type Credentialer interface {
	// SetKeys has a user log in with these keys, and with no other.
	SetKeys(ctx context.Context, user string, keys []string) error
	SetPassword(ctx context.Context, user, password string) error
}
