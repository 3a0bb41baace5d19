package console_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/test/printed"
	"github.com/vmlet/vmlet/test/suites"
)

// patience bounds a test; nothing waits for as long unless it is broken.
const patience = time.Minute

// start returns a console and the guest's end of it.
func start(t *testing.T) (*console.Console, net.Conn, *printed.Text) {
	t.Helper()
	log := new(printed.Text)
	c, file, err := console.New(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	guest := conn(t, file)
	return c, guest, log
}

func conn(t *testing.T, file *os.File) net.Conn {
	t.Helper()
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	suites.Bound(t, conn, patience)
	return conn
}

func attach(t *testing.T, c *console.Console, backlog int) net.Conn {
	t.Helper()
	file, err := c.Attach(backlog)
	if err != nil {
		t.Fatal(err)
	}
	return conn(t, file)
}

func write(t *testing.T, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, from net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(from, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

func TestBothDirections(t *testing.T) {
	c, guest, log := start(t)
	one, two := attach(t, c, 0), attach(t, c, 0)
	write(t, guest, "login: ")
	expect(t, one, "login: ")
	expect(t, two, "login: ")
	write(t, one, "root\n")
	expect(t, guest, "root\n")
	late := attach(t, c, 3)
	expect(t, late, "n: ")
	guest.Close()
	<-c.Done()
	c.Drain(t.Context())
	for _, client := range []net.Conn{one, two, late} {
		if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
			t.Errorf("after the end: %q, %v", b, err)
		}
	}
	if log.String() != "login: " {
		t.Errorf("log %q", log)
	}
	after := attach(t, c, 100) // what was said last may still be read
	if b, err := io.ReadAll(after); string(b) != "login: " || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func TestBacklogIsBounded(t *testing.T) {
	c, guest, _ := start(t)
	first := attach(t, c, 0)
	text := strings.Repeat("0123456789", console.Backlog/5)
	go io.WriteString(guest, text)
	expect(t, first, text)
	late := attach(t, c, 1<<30)
	expect(t, late, text[len(text)-console.Backlog:])
}

// A client that does not read loses the oldest output, is told how much, and hinders nobody.
func TestSlowClient(t *testing.T) {
	c, guest, log := start(t)
	slow, quick := attach(t, c, 0), attach(t, c, 0)
	text := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(quick)
		read <- string(b)
	}()
	for part := text; len(part) > 0; part = part[16<<10:] {
		write(t, guest, part[:16<<10])
		waitFor(t, func() bool { return len(log.String()) == len(text)-len(part)+16<<10 })
	}
	guest.Close()
	if got := <-read; got != text {
		t.Errorf("the quick client has %d bytes of %d", len(got), len(text))
	}
	b, _ := io.ReadAll(slow)
	first, rest, marked := strings.Cut(string(b), "\r\n[")
	number, last, _ := strings.Cut(rest, " bytes of the console were dropped here, as they were not read in time]\r\n")
	lost, _ := strconv.Atoi(number)
	switch {
	case !marked:
		t.Fatalf("the slow client has %d bytes and no word of what it has lost", len(b))
	case !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last):
		t.Error("the slow client has not the beginning and the end")
	case len(first)+lost+len(last) != len(text):
		t.Errorf("the slow client has %d and %d bytes and lost %d, want %d in all", len(first), len(last), lost, len(text))
	case last == "":
		t.Error("the slow client has lost the newest output")
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it does not come about")
		}
	}
}

// Clients come and go while the guest says nothing, and don't add up.
func TestClientsThatHaveGone(t *testing.T) {
	c, guest, _ := start(t)
	for range 500 {
		waitFor(t, func() bool {
			file, err := c.Attach(0)
			if err == nil {
				file.Close()
			} else if !errors.Is(err, console.ErrTooMany) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	// One that only stops typing still reads.
	var half net.Conn
	waitFor(t, func() bool {
		file, err := c.Attach(0)
		if err != nil {
			return false
		}
		half = conn(t, file)
		return true
	})
	if err := half.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	write(t, guest, "still here")
	expect(t, half, "still here")
}

func TestTooManyClients(t *testing.T) {
	c, _, _ := start(t)
	for n := 0; ; n++ {
		file, err := c.Attach(0)
		if err != nil {
			if !errors.Is(err, console.ErrTooMany) || n == 0 {
				t.Errorf("after %d: %v", n, err)
			}
			return
		}
		defer file.Close()
		if n > 1000 {
			t.Fatal("there is no bound")
		}
	}
}

// TestLastWords: what a guest prints last is given to those who watch, however late they
// read, unless nobody waits any longer.
func TestLastWords(t *testing.T) {
	c, guest, log := start(t)
	late, never := attach(t, c, 0), attach(t, c, 0)
	text := strings.Repeat("0123456789abcdef", 15<<10) // more than a socket takes, and less than a queue
	write(t, guest, text)
	guest.Close()
	<-c.Done()
	c.Close()
	if log.String() != text {
		t.Fatalf("%d bytes of %d are logged", len(log.String()), len(text))
	}
	if b, err := io.ReadAll(late); string(b) != text || err != nil {
		t.Errorf("read %d bytes of %d, %v", len(b), len(text), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Drain(ctx)
	if b, _ := io.ReadAll(never); len(b) >= len(text) || !strings.HasPrefix(text, string(b)) {
		t.Errorf("who was not waited for has read %d bytes of %d", len(b), len(text))
	}
}

// A guest that does not read stops those who type, and nothing else.
func TestGuestThatDoesNotRead(t *testing.T) {
	c, guest, _ := start(t)
	typist, reader := attach(t, c, 0), attach(t, c, 0)
	typed := make(chan error)
	go func() {
		_, err := typist.Write(make([]byte, 4<<20))
		typed <- err
	}()
	for range 100 {
		write(t, guest, "x")
		expect(t, reader, "x")
	}
	c.Close()
	if err := <-typed; err == nil {
		t.Error("4 MiB were taken that nobody reads")
	}
}

// TestReplace: another VMM prints on the same console, and reads what is typed once it is used; the console ends with the last.
func TestReplace(t *testing.T) {
	c, first, log := start(t)
	client := attach(t, c, 0)
	dropped, err := c.Replace()
	if err != nil {
		t.Fatal(err)
	}
	conn(t, dropped.VMM)
	if err := dropped.Drop(); err != nil {
		t.Fatal(err)
	}
	r, err := c.Replace()
	if err != nil {
		t.Fatal(err)
	}
	second := conn(t, r.VMM)
	write(t, client, "a")
	expect(t, first, "a")
	write(t, second, "booting")
	expect(t, client, "booting")
	r.Use()
	write(t, client, "b")
	expect(t, second, "b")
	first.Close()
	write(t, second, "still")
	expect(t, client, "still")
	second.Close()
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Errorf("%q after the end, %v", rest, err)
	}
	<-c.Done()
	if got := log.String(); got != "bootingstill" {
		t.Errorf("logged %q", got)
	}
	if _, err := c.Replace(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a console that has ended is replaced: %v", err)
	}
}
