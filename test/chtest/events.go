package chtest

import (
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// monitor writes events: JSON over several lines, each followed by an empty one.
// What can't be written at once is lost.
type monitor struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer // nil: nobody asked for events
}

// event as event_monitor/src/lib.rs has it. Times are since the VMM's start.
type event struct {
	Timestamp struct {
		Secs  int64 `json:"secs"`
		Nanos int64 `json:"nanos"`
	} `json:"timestamp"`
	Source     string            `json:"source"`
	Event      string            `json:"event"`
	Properties map[string]string `json:"properties"`
}

func (m *monitor) emit(source, name string, properties map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out == nil {
		return
	}
	e := event{Source: source, Event: name, Properties: properties}
	since := time.Since(m.start)
	e.Timestamp.Secs, e.Timestamp.Nanos = int64(since/time.Second), int64(since%time.Second)
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return
	}
	m.out.Write(append(text, "\n\n"...)) // what is lost is lost
}

// junk writes what is no event.
func (m *monitor) junk(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out != nil {
		spill(m.out, "}{", bytes)
	}
}

// descriptor is a file that is never waited for, so unlike os.File.
type descriptor int

func (d descriptor) Write(p []byte) (int, error) { return unix.Write(int(d), p) }

// monitorFile makes a file's descriptor one that isn't waited for.
func monitorFile(file *os.File) (descriptor, error) {
	fd := int(file.Fd()) // which makes it a waiting one
	return descriptor(fd), unix.SetNonblock(fd, true)
}
