package chapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// DefaultMaxEvent bounds an event, in bytes. Real ones have some two hundred.
const DefaultMaxEvent = 16 << 10

// Sources of events. Others exist and more may come.
const (
	SourceVMM          = "vmm"           // the VMM's process
	SourceVM           = "vm"            // the VM's life
	SourceGuest        = "guest"         // what the guest tells by a device: its panic
	SourceVirtioDevice = "virtio-device" // a driver in the guest begins or ends to use a device
)

// Events that vmlet goes by, all but the last two from SourceVM.
const (
	EventBooted   = "booted"
	EventPaused   = "paused"
	EventResumed  = "resumed"
	EventShutdown = "shutdown" // also from SourceVMM, before the process ends
	EventDeleted  = "deleted"
	EventRebooted = "rebooted"
	EventRestored = "restored"
	EventResized  = "resized"
	// EventSnapshotted comes before the files are written: trust the call's reply.
	EventSnapshotted = "snapshotted"
	// EventDeviceRemoved has the properties id and bdf.
	EventDeviceRemoved = "device-removed"
	EventPanic         = "panic" // from SourceGuest, with the property event
)

// Event is what the event monitor tells.
type Event struct {
	// Since is the time from the VMM's start to the event.
	Since  time.Duration
	Source string
	Name   string
	// Properties is an object of strings, or nil.
	Properties json.RawMessage
}

// Property returns a property's value, or an empty string.
func (e Event) Property(name string) string {
	var properties map[string]any
	if json.Unmarshal(e.Properties, &properties) != nil {
		return ""
	}
	value, _ := properties[name].(string)
	return value
}

// Events reads the stream of the event monitor. It is for one goroutine.
//
// The VMM writes without waiting, and what doesn't fit into the pipe is lost. Let a
// goroutine read at all times. A pipe takes an event of up to PIPE_BUF (4096) bytes
// whole or not at all; in a socket or a file a loss could cut one in two, which
// ends the stream.
type Events struct {
	bounded *boundedReader
	decoder *json.Decoder
	err     error
}

// NewEvents reads events of at most maxEvent bytes from r, which stays the
// caller's: to wake a waiting Next close it.
func NewEvents(r io.Reader, maxEvent int) *Events {
	bounded := &boundedReader{r: r, max: int64(maxEvent)}
	e := &Events{bounded: bounded, decoder: json.NewDecoder(bounded)}
	bounded.consumed = e.decoder.InputOffset
	return e
}

// boundedReader stops a decoder that has read more than max bytes since the end of
// the last value: all that it holds is in memory.
type boundedReader struct {
	r         io.Reader
	read, max int64
	consumed  func() int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	room := b.consumed() + b.max - b.read
	if room <= 0 {
		return 0, fmt.Errorf("%w: an event has more than %d bytes", ErrTooLong, b.max)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), room)])
	b.read += int64(n)
	return n, err
}

// wireEvent is an event as it comes. The timestamp is a span of time.
type wireEvent struct {
	Timestamp *struct {
		Seconds     uint64 `json:"secs"`
		Nanoseconds uint32 `json:"nanos"`
	} `json:"timestamp"`
	Source     string          `json:"source"`
	Event      string          `json:"event"`
	Properties json.RawMessage `json:"properties"`
}

// Next waits for the next event. It returns io.EOF when the stream has ended after
// a whole event, and any other error for a stream that can't be read on; that error
// stays.
func (e *Events) Next() (Event, error) {
	if e.err != nil {
		return Event{}, e.err
	}
	event, err := e.next()
	if err != nil && err != io.EOF {
		err = fmt.Errorf("cloud-hypervisor's events: %w", err)
	}
	e.err = err
	return event, err
}

func (e *Events) next() (Event, error) {
	var w wireEvent
	if err := e.decoder.Decode(&w); err != nil {
		return Event{}, streamError(err)
	}
	if w.Timestamp == nil || w.Source == "" || w.Event == "" {
		return Event{}, fmt.Errorf("%w: an event without a timestamp, a source or a name", ErrProtocol)
	}
	if w.Timestamp.Seconds >= math.MaxInt64/uint64(time.Second) || w.Timestamp.Nanoseconds >= 1e9 {
		return Event{}, fmt.Errorf("%w: an event %d seconds and %d nanoseconds after the start", ErrProtocol, w.Timestamp.Seconds, w.Timestamp.Nanoseconds)
	}
	if string(w.Properties) == "null" {
		w.Properties = nil
	}
	since := time.Duration(w.Timestamp.Seconds)*time.Second + time.Duration(w.Timestamp.Nanoseconds)
	return Event{since, w.Source, w.Event, w.Properties}, nil
}

// streamError makes ErrProtocol of what is wrong with the bytes and leaves what is
// wrong with the reader.
func streamError(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF): // the VMM was killed as it wrote
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	case errors.As(err, &syntax) || errors.As(err, &kind):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}
