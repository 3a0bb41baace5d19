package logfile

import (
	"bytes"
	"strings"
	"sync"
)

// Tail keeps the end of what was written to it. Its methods may be called
// concurrently.
type Tail struct {
	mu  sync.Mutex
	max int
	buf []byte
}

// NewTail keeps up to max bytes.
func NewTail(max int) *Tail { return &Tail{max: max} }

// Write takes b; it never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if len(b) > t.max {
		b = b[len(b)-t.max:]
	}
	if t.buf == nil {
		t.buf = make([]byte, 0, t.max)
	}
	if over := len(t.buf) + len(b) - t.max; over > 0 {
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
	}
	t.buf = append(t.buf, b...)
	return n, nil
}

// Bytes returns a copy of the last n bytes, or of as many as there are.
func (t *Tail) Bytes(n int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf[len(t.buf)-max(0, min(n, len(t.buf))):])
}

// Lines returns the last n lines as valid UTF-8, without control characters
// other than tabs: they go to terminals and logs.
func (t *Tail) Lines(n int) string {
	text := strings.ToValidUTF8(strings.TrimSpace(string(t.Bytes(t.max))), "?")
	lines := strings.Split(text, "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = strings.Map(printable, line)
	}
	return strings.Join(lines, "\n")
}

func printable(r rune) rune {
	if r < ' ' && r != '\t' || r == 0x7f {
		return -1
	}
	return r
}
