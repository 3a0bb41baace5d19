package run

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"
)

// Tail keeps the last Limit bytes of what is written to it.
type Tail struct {
	Limit int
	text  []byte
}

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - t.Limit; over > 0 {
		t.text = append([]byte(nil), t.text[over:]...)
	}
	return len(p), nil
}

// String is what is kept, as it was written.
func (t *Tail) String() string { return string(t.text) }

// Line is what is kept, in one line of what can be printed.
func (t *Tail) Line() string {
	return Printable(strings.Join(strings.Split(string(bytes.TrimSpace(t.text)), "\n"), "; "))
}

// Printable replaces what can't be printed: a program's words go to logs and terminals.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
}

// Refused says whether a program that complained in these words was refused something
// by the kernel, or didn't find it. That stays until something on the machine changes.
func Refused(words string) bool {
	words = strings.ToLower(words) // the C library's begin with a capital letter
	return slices.ContainsFunc([]syscall.Errno{
		unix.EACCES, unix.EPERM, unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOTTY,
	}, func(e syscall.Errno) bool { return strings.Contains(words, e.Error()) })
}
