package control

import (
	"context"
	"encoding/json"
	"errors"
	"os"
)

// ErrGuestKeeps is wrapped by Detach's errors when the guest has not let the device
// go by the end of the context: it still has it.
var ErrGuestKeeps = errors.New("the guest has not let the device go")

// Plugger is a Machine whose VMM takes and gives up devices while it runs. Attach and
// Detach are called one at a time.
type Plugger interface {
	// Attach gives the VMM a device; after an error nothing of it stays.
	Attach(ctx context.Context, a Attachment) error
	// Detach asks the guest to let a device go, and returns when the VMM has nothing
	// of it any more. Asked again for a device that is gone, it tidies up after it.
	Detach(ctx context.Context, instructions json.RawMessage) error
	// AwaitGone returns when the guest has let go of a device after all, that it kept
	// when Detach was called: then Detach is to be called again. Nil: it is gone.
	AwaitGone(ctx context.Context, instructions json.RawMessage) error
}

// Attachment is what a driver gets of a plan's.
type Attachment struct {
	Instructions json.RawMessage
	// Files of the attachment, in their order; they are closed afterwards.
	Files []*os.File
	// Buffered is as in Link.
	Buffered []int
}
