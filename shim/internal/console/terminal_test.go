package console_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/test/printed"
	"github.com/vmlet/vmlet/test/suites"
)

// terminal returns a console and the VMM's end of it, to read and to write.
func terminal(t *testing.T) (c *console.Console, in, out *os.File, log *printed.Text) {
	t.Helper()
	log = new(printed.Text)
	c, in, out, err := console.NewTerminal(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close(); c.Close() })
	return c, in, out, log
}

// TestTerminalIsTransparent: every byte goes through as it is, in both directions.
func TestTerminalIsTransparent(t *testing.T) {
	c, in, out, log := terminal(t)
	client := attach(t, c, 0)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if _, err := out.Write(all); err != nil {
		t.Fatal(err)
	}
	expect(t, client, string(all))
	write(t, client, string(all))
	got := make([]byte, len(all))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, all) {
		t.Errorf("%q, %v", got, err)
	}
	if log.String() != string(all) { // what was typed is not in it
		t.Errorf("log %q", log)
	}
}

// TestTerminalLastWords: what a VMM prints as it ends is all there, whatever was still
// on its way.
func TestTerminalLastWords(t *testing.T) {
	for range 50 {
		c, in, out, log := terminal(t)
		text := strings.Repeat("0123456789abcdef", 200) + "power off\n"
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
		in.Close()
		out.Close()
		<-c.Done()
		if got := log.String(); got != text {
			t.Fatalf("%d bytes of %d: %q", len(got), len(text), got[max(0, len(got)-20):])
		}
	}
}

// TestTerminalClosed has a VMM close its terminal and live on: nobody waits for it.
func TestTerminalClosed(t *testing.T) {
	c, in, out, _ := terminal(t)
	client := attach(t, c, 0)
	print(t, out, "bye")
	in.Close()
	out.Close()
	<-c.Done()
	expect(t, client, "bye")
	if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	late := attach(t, c, 100)
	if b, err := io.ReadAll(late); string(b) != "bye" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	c.Drain(t.Context())
}

func print(t *testing.T, to *os.File, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

// TestTerminalNotRead: a VMM that doesn't read stops those who type, and nothing else.
func TestTerminalNotRead(t *testing.T) {
	c, _, out, _ := terminal(t)
	typist, reader := attach(t, c, 0), attach(t, c, 0)
	typed := make(chan error)
	go func() {
		_, err := typist.Write(make([]byte, 4<<20))
		typed <- err
	}()
	for range 100 {
		print(t, out, "x")
		expect(t, reader, "x")
	}
	c.Close()
	if err := <-typed; err == nil {
		t.Error("4 MiB were taken that nobody reads")
	}
}

// TestTerminalMode has a VMM make what it likes of its terminal: with an echo, what is
// typed comes back as output, and all goes on.
func TestTerminalMode(t *testing.T) {
	c, in, out, _ := terminal(t)
	client := attach(t, c, 0)
	fd := int(in.Fd())
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Lflag |= unix.ECHO | unix.ICANON | unix.ISIG
	mode.Iflag |= unix.IXON
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	write(t, client, "echo")
	expect(t, client, "echo")
	write(t, client, "\x03\x13\x11") // an interrupt, stop, go on
	print(t, out, "on")
	b := make([]byte, 64)
	for seen := ""; !strings.Contains(seen, "on"); {
		n, err := client.Read(b)
		if err != nil {
			t.Fatalf("after %q: %v", seen, err)
		}
		seen += string(b[:n])
	}
}

// TestTerminalFlood: a VMM that prints without end is heard by nobody, and can be ended.
func TestTerminalFlood(t *testing.T) {
	log := &floodLog{left: 1 << 20, full: make(chan struct{})}
	c, in, out, err := console.NewTerminal(log)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	attach(t, c, 0) // reads nothing
	ended := make(chan error)
	go func() {
		page := bytes.Repeat([]byte("flood\n"), 1000)
		for {
			if _, err := out.Write(page); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-log.full: // whoever doesn't keep up was dropped, and held up nobody
	case <-suites.After(t, patience):
		t.Error("the console is not read on")
	}
	c.Close()
	if err := <-ended; err == nil {
		t.Error("it prints on")
	}
	out.Close()
}

// floodLog closes full when so many bytes have come; it is written to by one goroutine.
type floodLog struct {
	left int
	full chan struct{}
}

func (l *floodLog) Write(b []byte) (int, error) {
	if l.left > 0 && l.left <= len(b) {
		close(l.full)
	}
	l.left -= len(b)
	return len(b), nil
}
