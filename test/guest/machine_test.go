package guest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// qemus are the QEMUs of this machine, by name.
func qemus(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	if path, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		found["own"] = path
	}
	if path, err := guest.QEMU10(); err == nil {
		found["10"] = path
	}
	if len(found) == 0 {
		t.Skip("no qemu-system-x86_64: run test/setup test")
	}
	return found
}

// newest is one of them only, where it is the guest that is tried, which takes seconds to
// boot, and not the QEMU.
func newest(t *testing.T) map[string]string {
	t.Helper()
	found := qemus(t)
	if len(found) > 1 && !everything.Wanted() {
		delete(found, "own")
	}
	return found
}

// machine is a running VMM with its console and, of a QEMU, its monitor.
type machine struct {
	t       *testing.T
	ctx     context.Context
	cmd     *exec.Cmd
	console io.Writer
	lines   <-chan string
	monitor net.Conn
	replies *json.Decoder
}

// patience bounds every test of a guest; nothing waits for as long as this
// unless it is broken.
const patience = 5 * time.Minute

// boot starts QEMU with an ELF file or a kernel; args come last.
func boot(t *testing.T, qemu string, args ...string) *machine {
	t.Helper()
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	t.Cleanup(cancel)
	m := &machine{t: t, ctx: ctx}
	console, consoleFile := socketpair(t)
	monitor, monitorFile := socketpair(t)
	m.console, m.monitor = console, monitor
	m.lines, m.replies = readLines(console), json.NewDecoder(monitor)

	m.cmd = exec.CommandContext(ctx, qemu, append([]string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-chardev", "socket,id=console,fd=3", "-serial", "chardev:console",
		"-chardev", "socket,id=monitor,fd=4", "-mon", "chardev=monitor,mode=control",
	}, args...)...)
	m.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	m.cmd.ExtraFiles = []*os.File{consoleFile, monitorFile}
	m.cmd.Stderr = &testWriter{t, "qemu"}
	if err := m.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", qemu, err)
	}
	consoleFile.Close()
	monitorFile.Close()
	t.Cleanup(func() {
		cancel()
		m.cmd.Wait() // killed, or ended and looked at in gone
		console.Close()
		monitor.Close()
	})
	m.execute("qmp_capabilities")
	return m
}

// socketpair returns both ends of a stream, one of them to be inherited.
func socketpair(t *testing.T) (net.Conn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("socketpair: %v", err)
	}
	own := os.NewFile(uintptr(fds[0]), "own end")
	defer own.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		t.Fatalf("socketpair: %v", err)
	}
	suites.Bound(t, conn, patience)
	return conn, os.NewFile(uintptr(fds[1]), "inherited end")
}

type testWriter struct {
	t       *testing.T
	program string
}

func (w *testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s: %s", w.program, b)
	return len(b), nil
}

// execute runs a monitor command and waits for its answer.
func (m *machine) execute(command string) {
	m.t.Helper()
	if err := json.NewEncoder(m.monitor).Encode(map[string]string{"execute": command}); err != nil {
		m.t.Fatalf("%s: %v", command, err)
	}
	for {
		var reply map[string]json.RawMessage
		if err := m.replies.Decode(&reply); err != nil {
			m.t.Fatalf("%s: %v", command, err)
		}
		if fault, ok := reply["error"]; ok {
			m.t.Fatalf("%s: %s", command, fault)
		}
		if _, ok := reply["return"]; ok {
			return
		}
	}
}

// event waits for an event of the monitor.
func (m *machine) event(name string) {
	m.t.Helper()
	for {
		var message struct{ Event string }
		if err := m.replies.Decode(&message); err != nil {
			m.t.Fatalf("waiting for %s: %v", name, err)
		}
		if message.Event == name {
			return
		}
	}
}

// expect reads console lines up to one that matches, and returns its
// submatches.
func (m *machine) expect(pattern string) []string {
	m.t.Helper()
	re := regexp.MustCompile("^" + pattern + "$")
	var seen []string
	for line := range m.lines {
		seen = append(seen, line)
		if found := re.FindStringSubmatch(line); found != nil {
			return found
		}
	}
	m.t.Fatalf("the console ended without %q; it said:\n%s", pattern, strings.Join(tail(seen, 50), "\n"))
	return nil
}

// readLines reads a console to its end, whether or not anyone wants the lines
// yet: a guest stops when nobody takes what it writes.
func readLines(console io.Reader) <-chan string {
	lines := make(chan string, 1<<16)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(console); in.Scan(); {
			lines <- strings.TrimRight(in.Text(), "\r")
		}
	}()
	return lines
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// send types on the console.
func (m *machine) send(text string) {
	m.t.Helper()
	if _, err := io.WriteString(m.console, text); err != nil {
		m.t.Fatalf("console: %v", err)
	}
}

// gone waits for the VMM to end by itself.
func (m *machine) gone() {
	m.t.Helper()
	for range m.lines {
	}
	if err := m.cmd.Wait(); err != nil {
		m.t.Errorf("the VMM ended with %v", err)
	}
}

// file writes content to a fresh file and returns its path.
func file(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
