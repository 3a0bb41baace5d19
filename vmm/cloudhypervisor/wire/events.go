package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// EventsSocket is the name, in the VM's run folder, of the socket on which the shim's
// driver passes on the VMM's events, as the pipe that they come from has one reader.
//
// Any number of clients may connect. Each is sent [Frame]s, one to a line, and sends
// nothing. The first is a State, which tells what was before; so is each that follows
// a loss, as the driver waits for nobody: what a client is too slow for it drops.
const EventsSocket = "ch-events.sock"

// MaxFrame bounds a line of EventsSocket, in bytes with its end. The VMM's pipe takes
// events of at most 4096 bytes whole (PIPE_BUF).
const MaxFrame = 16 << 10

// Frame is what one line of EventsSocket has: one of the two.
type Frame struct {
	Event *Event `json:"event,omitempty"`
	State *State `json:"state,omitempty"`
}

// Event is an event of the VMM's, see chapi.Event.
type Event struct {
	// Time is when the driver read it.
	Time       time.Time       `json:"time"`
	Source     string          `json:"source"`
	Name       string          `json:"name"`
	Properties json.RawMessage `json:"properties,omitempty"`
}

// AsTold is the event as the VMM sent it, but for its time.
func (e *Event) AsTold() chapi.Event {
	return chapi.Event{Source: e.Source, Name: e.Name, Properties: e.Properties}
}

// Panicked says whether a guest has panicked, by an event and what was before. A guest
// may also tell, by the same event, that it has loaded a kernel for its panic
// (devices/src/pvpanic.rs), and goes on.
func Panicked(was bool, e chapi.Event) bool {
	switch {
	case e.Source == chapi.SourceGuest && e.Name == chapi.EventPanic && e.Property("event") == "panic":
		return true
	case e.Source == chapi.SourceVM:
		switch e.Name {
		case chapi.EventBooted, chapi.EventRebooted, chapi.EventRestored:
			return false
		}
	}
	return was
}

// BootTried says whether a VM was ever booted, reset or restored, or that was begun, by
// an event and what was before. One that was is never to be booted by vm.boot: when a boot
// fails over one disk the VMM (v53) forgets all of them, and the next succeeds without.
func BootTried(was bool, e chapi.Event) bool {
	if e.Source != chapi.SourceVM {
		return was
	}
	switch e.Name {
	case "booting", chapi.EventBooted, "rebooting", chapi.EventRebooted, "restoring", chapi.EventRestored, chapi.EventShutdown:
		return true
	}
	return was
}

// State is what a client has to know that has not had all events, and can't ask the
// VMM for.
type State struct {
	// Dropped is how many events this client was not sent, here.
	Dropped int `json:"dropped,omitempty"`
	// BootTried: the VM was booted, or that was tried, see BootTried.
	BootTried bool `json:"bootTried,omitempty"`
	// Panicked: the guest has, see Panicked.
	Panicked bool `json:"panicked,omitempty"`
}

// Line returns a frame as it is sent, with the end of the line. One that is longer
// than MaxFrame is an error.
func (f Frame) Line() ([]byte, error) {
	line, err := json.Marshal(f)
	if err == nil && len(line) >= MaxFrame {
		err = fmt.Errorf("a frame of %d bytes: at most %d are sent", len(line)+1, MaxFrame)
	}
	return append(line, '\n'), err
}

// Frames reads what is sent on EventsSocket. It is for one goroutine.
type Frames struct{ lines *bufio.Scanner }

// NewFrames reads frames from r, which stays the caller's.
func NewFrames(r io.Reader) *Frames {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxFrame)
	return &Frames{lines}
}

// Next waits for the next frame. The error is io.EOF at the end of the stream.
func (f *Frames) Next() (Frame, error) {
	var frame Frame
	if !f.lines.Scan() {
		if err := f.lines.Err(); err != nil {
			return frame, fmt.Errorf("%s: %w", EventsSocket, err)
		}
		return frame, io.EOF
	}
	if err := json.Unmarshal(f.lines.Bytes(), &frame); err != nil {
		return Frame{}, fmt.Errorf("%s: %w", EventsSocket, err)
	}
	if (frame.Event == nil) == (frame.State == nil) {
		return Frame{}, fmt.Errorf("%s: want an event or a state in each line", EventsSocket)
	}
	return frame, nil
}
