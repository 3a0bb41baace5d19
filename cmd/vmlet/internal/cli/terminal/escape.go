// Package terminal connects a user's terminal with a guest's console: the raw
// mode and its end, and the key that leaves the console.
package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// ErrEscape ends what an escape reader reads: the user wants to leave.
var ErrEscape = errors.New("escape sequence")

// Escape is a key that leaves a console. The zero value is none.
type Escape struct {
	set bool
	key byte
}

// ParseEscape reads "^]" and its like (a control character in caret notation),
// one printable ASCII character, or "none".
func ParseEscape(s string) (Escape, error) {
	switch {
	case s == "none":
		return Escape{}, nil
	case len(s) == 1 && s[0] > ' ' && s[0] < 0x7f:
		return Escape{true, s[0]}, nil
	case len(s) == 2 && s[0] == '^':
		c := s[1]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if '@' <= c && c <= '_' {
			return Escape{true, c ^ 0x40}, nil
		}
	}
	return Escape{}, fmt.Errorf("%q is no escape key: a control key like ^] or ^A, one character, or none", s)
}

// String returns the key in the notation that ParseEscape reads.
func (e Escape) String() string {
	switch {
	case !e.set:
		return "none"
	case e.key < ' ':
		return "^" + string(rune(e.key^0x40))
	}
	return string(rune(e.key))
}

// Reader returns what r has until the key, and then ErrEscape.
func (e Escape) Reader(r io.Reader) io.Reader {
	if !e.set {
		return r
	}
	return &escapeReader{r: r, key: e.key}
}

type escapeReader struct {
	r    io.Reader
	key  byte
	left bool
}

func (e *escapeReader) Read(b []byte) (int, error) {
	if e.left {
		return 0, ErrEscape
	}
	n, err := e.r.Read(b)
	if i := bytes.IndexByte(b[:n], e.key); i >= 0 {
		e.left = true
		return i, ErrEscape
	}
	return n, err
}

// Is tells whether v, a stream of the process, is a terminal.
func Is(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is how many columns the terminal v has; 0: it is none, or doesn't say.
func Width(v any) int {
	if !Is(v) {
		return 0
	}
	width, _, err := term.GetSize(int(v.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Raw puts the terminal f into raw mode and returns what restores it, which
// must be called on every way out. If f is no terminal nothing is done.
func Raw(f any) (restore func(), err error) {
	if !Is(f) {
		return func() {}, nil
	}
	fd := int(f.(*os.File).Fd())
	was, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return func() { _ = term.Restore(fd, was) }, nil
}
