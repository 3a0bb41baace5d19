package chvm

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

// Panicked says whether this is the guest telling of its panic; it tells by the same
// event, with another property, that it has a kernel loaded to go on with.
func (e *Event) Panicked() bool {
	of := chapi.Event{Source: e.Source, Name: e.Name, Properties: e.Properties}
	return of.Source == chapi.SourceGuest && of.Name == chapi.EventPanic && of.Property("event") == panicked
}

// panicked is the property's value (devices/src/pvpanic.rs).
const panicked = "panic"

// State is what a client has to know that has not had all events, and can't ask the
// VMM for.
type State struct {
	// Dropped is how many events this client was not sent, here.
	Dropped int `json:"dropped,omitempty"`
	// Panicked: the guest has told of its panic (Event.Panicked), and was not rebooted,
	// booted or restored since.
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
