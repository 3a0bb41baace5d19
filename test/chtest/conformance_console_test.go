package chtest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/guest"
)

// TestConsoleConformance is of the serial console in a socket.
func TestConsoleConformance(t *testing.T) {
	for _, s := range subjects(t) {
		for name, test := range map[string]func(*testing.T, *started, string){
			"kept and taken over": consoleTakenOver, "reboot": consoleReboot, "typed": consoleTyped, "polite": consolePolite,
			"rude": func(t *testing.T, vmm *started, path string) { consoleRude(t, vmm, path, s.name == "stand-in") },
		} {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				dir := workplace(t)
				vmm := start(t, s.program)
				vmm.put(t, "vm.create", strings.ReplaceAll(vmWith(`"serial":{"mode":"Socket","socket":"{dir}/serial"}`), "{dir}", dir), 204)
				vmm.put(t, "vm.boot", "", 204)
				test(t, vmm, filepath.Join(dir, "serial"))
			})
		}
	}
}

// line is the console with its lines, which are waited for.
type line struct {
	*net.UnixConn
	in *bufio.Reader
}

func dialConsole(t *testing.T, path string) line {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute)) // only so that a test that fails ends
	return line{conn, bufio.NewReader(conn)}
}

func (l line) until(t *testing.T, want string) {
	t.Helper()
	for {
		text, err := l.in.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %q: %v", want, err)
		}
		if strings.TrimRight(text, "\r\n") == want {
			return
		}
	}
}

// ends wants no more than what has come, and returns it.
func (l line) ends(t *testing.T) string {
	t.Helper()
	rest, err := io.ReadAll(l.in)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("nobody hung up")
	}
	return string(rest) // reset or not: it has ended
}

func consoleTakenOver(t *testing.T, _ *started, path string) {
	first := dialConsole(t, path)
	first.until(t, guest.UpLine) // kept from before anybody was there
	second := dialConsole(t, path)
	first.ends(t)
	second.until(t, guest.CountPrefix+"30")
}

func consoleReboot(t *testing.T, vmm *started, path string) {
	before := dialConsole(t, path)
	before.until(t, guest.CountPrefix+"1")
	vmm.put(t, "vm.reboot", "", 204)
	before.ends(t)
	after := dialConsole(t, path)
	after.until(t, guest.UpLine)
	after.until(t, guest.CountPrefix+"1")
}

func consoleTyped(t *testing.T, _ *started, path string) {
	l := dialConsole(t, path)
	l.until(t, guest.UpLine)
	io.WriteString(l, "x")
	l.until(t, guest.EchoPrefix+"x")
}

// consoleRude: somebody goes who has not read what came, and the console is of no
// use until the next boot. The real one may yet take whoever comes next, if it
// hears of him before it hears that the other has gone.
func consoleRude(t *testing.T, vmm *started, path string, sure bool) {
	rude := dialConsole(t, path)
	if _, err := rude.in.Peek(1); err != nil {
		t.Fatal(err)
	}
	for waits := false; !waits; { // what the reader here took over does not count
		raw, err := rude.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { waits = readable(int(fd)) })
	}
	rude.Close()
	next := dialConsole(t, path)
	vmm.put(t, "vm.reboot", "", 204)
	if got := next.ends(t); got != "" && sure {
		t.Errorf("the console said %q", got)
	}
	dialConsole(t, path).until(t, guest.CountPrefix+"1")
}

// consolePolite: somebody who says that he goes, and reads to the end, is let go.
// The guest is told by a NUL.
func consolePolite(t *testing.T, _ *started, path string) {
	polite := dialConsole(t, path)
	polite.until(t, guest.CountPrefix+"1")
	if err := polite.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	polite.ends(t)
	polite.Close()
	dialConsole(t, path).until(t, guest.EchoPrefix+"\x00")
}

// readable tells whether something came that was not read.
func readable(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 1000)
	return err == nil && n == 1
}
