package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal/ptytest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// echoGuest prints a prompt, then what is typed in upper case, until "bye".
func echoGuest(in <-chan []byte, out func(string)) {
	out("login: ")
	var typed []byte
	for b := range in {
		out(strings.ToUpper(string(b)))
		if typed = append(typed, b...); bytes.Contains(typed, []byte("bye")) {
			return
		}
	}
}

// onTerminal runs the client with a terminal and returns the user's side, and
// what waits for its end.
func onTerminal(t *testing.T, ctx context.Context, n *fakeNode, args ...string) (user *os.File, wait func() result) {
	t.Helper()
	user, tty := ptytest.Open(t)
	before := ptytest.Modes(t, tty)
	env, _, errOut := n.env("")
	env.Stdin, env.Stdout = tty, tty
	done := make(chan int, 1)
	go func() { done <- Main(ctx, env, args) }()
	return user, func() result {
		t.Helper()
		code := <-done
		if ptytest.Modes(t, tty) != before {
			t.Error("the terminal's modes were not restored")
		}
		return result{code: code, stderr: errOut.String()}
	}
}

// expect reads until the text has come.
func expect(t *testing.T, r io.Reader, text string) {
	t.Helper()
	readUntil(t, r, text)
}

// readUntil returns what has come with the text at its end.
func readUntil(t *testing.T, r io.Reader, text string) string {
	t.Helper()
	var got []byte
	b := make([]byte, 1)
	for !bytes.HasSuffix(got, []byte(text)) {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("waiting for %q: %v after %q", text, err, got)
		}
		got = append(got, b...)
	}
	return string(got)
}

func typeKeys(t *testing.T, w io.Writer, keys string) {
	t.Helper()
	if _, err := io.WriteString(w, keys); err != nil {
		t.Fatal(err)
	}
}

func TestConsoleOnATerminal(t *testing.T) {
	for _, test := range []struct {
		name, keys string
		args       []string
		stderr     string
	}{
		{"left", "\x1d", nil, "Left the console of web."},
		{"left by another key", "\x01", []string{"--escape", "^A"}, "Left the console of web."},
		{"machine ends", "bye", nil, "The console of web has ended."},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newFakeNode(t, machine("web", runs))
			n.console = echoGuest
			user, wait := onTerminal(t, t.Context(), n, append([]string{"console", "web"}, test.args...)...)
			expect(t, user, "login: ")
			// Ctrl-C, Ctrl-D, Ctrl-Z, Ctrl-S, Ctrl-Q and a carriage return are the guest's.
			typeKeys(t, user, "a\x03\x04\x1a\x13\x11\rz")
			expect(t, user, "A\x03\x04\x1a\x13\x11\rZ")
			typeKeys(t, user, test.keys)
			if r := wait(); r.code != 0 || !strings.HasSuffix(r.stderr, test.stderr+"\n") {
				t.Errorf("%+v, want %q", r, test.stderr)
			}
		})
	}
}

func TestConsoleRestoresTheTerminal(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		n := newFakeNode(t, machine("web", runs))
		n.console = echoGuest
		ctx, interrupt := context.WithCancel(t.Context())
		user, wait := onTerminal(t, ctx, n, "console", "web")
		expect(t, user, "login: ")
		interrupt()
		if r := wait(); r.code != exitFailed || !strings.HasSuffix(r.stderr, "vmlet: interrupted\n") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("refused", func(t *testing.T) {
		n := newFakeNode(t, machine("web", stopped))
		_, wait := onTerminal(t, t.Context(), n, "console", "web")
		if r := wait(); r.code != exitFailed || !strings.Contains(r.stderr, `vmlet: vm "web" is stopped`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("agent lost", func(t *testing.T) {
		n := newFakeNode(t, machine("web", runs))
		n.console = echoGuest
		user, wait := onTerminal(t, t.Context(), n, "console", "web")
		expect(t, user, "login: ")
		go n.server.Stop()
		if r := wait(); r.code != exitNoAgent || !strings.Contains(r.stderr, "closed the connection") {
			t.Errorf("%+v", r)
		}
	})
}

func TestConsoleThroughPipes(t *testing.T) {
	for _, test := range []struct {
		name, stdin string
		args        []string
		stdout      string
	}{
		{"binary", "a\x1d\x00\xffbye", nil, "login: A\x1d\x00\ufffdBYE"},
		{"asked for a key", "a\x1dbye", []string{"--escape", "^]"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newFakeNode(t, machine("web", runs))
			n.console = echoGuest
			r := n.runInput(t, test.stdin, append([]string{"console", "web"}, test.args...)...)
			if r.code != 0 || !strings.HasPrefix(r.stdout, test.stdout) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The end of the input is not the end of the console.
func TestConsoleAfterItsInput(t *testing.T) {
	n := newFakeNode(t, machine("web", runs))
	n.console = func(in <-chan []byte, out func(string)) {
		out("got " + string(<-in))
		out(", bye")
	}
	if r := n.runInput(t, "x", "console", "web"); r.code != 0 || r.stdout != "got x, bye" {
		t.Errorf("%+v", r)
	}
}

func TestRun(t *testing.T) {
	ends := func(n *fakeNode, to nodev1.State, message string) func(<-chan []byte, func(string)) {
		return func(_ <-chan []byte, out func(string)) {
			out("booted\n")
			n.mu.Lock()
			n.vms["a"].Status.Message = message
			n.vms["a"].Status.Image = imageAt("/img")
			n.mu.Unlock()
			n.change("a", to)
		}
	}
	for _, test := range []struct {
		name    string
		args    []string
		to      nodev1.State
		code    int
		stdout  string
		stderr  string
		deleted bool
	}{
		{"ends", nil, stopped, 0, "booted\n", "", false},
		{"ends, rm", []string{"--rm"}, stopped, 0, "booted\n", "", true},
		{"crashes", nil, crashed, 1, "booted\n", "vmlet: vm \"a\" crashed: it panicked (see: vmlet logs --vmm a)\n", false},
		{"crashes, rm", []string{"--rm"}, crashed, 1, "booted\n", "vmlet: vm \"a\" crashed: it panicked\n", true},
		{"saved, rm", []string{"--rm"}, saved, 0, "booted\n", "a was saved to /img: vmlet start a lets it go on.\n", false},
		{"detached", []string{"--detach"}, runs, 0, "a started\n", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newFakeNode(t)
			n.console = ends(n, test.to, "it panicked")
			r := n.run(t, append([]string{"run", "a"}, test.args...)...)
			if r != (result{test.code, test.stdout, test.stderr}) {
				t.Errorf("%+v", r)
			}
			if deleted := slices.Contains(n.takeCalls(), `DeleteVM name:"a"`); deleted != test.deleted {
				t.Errorf("deleted: %v", deleted)
			}
		})
	}
}

// The console may end before the machine's state says so.
func TestRunWaitsForTheEnd(t *testing.T) {
	n := newFakeNode(t)
	n.console = func(_ <-chan []byte, out func(string)) {
		go func() {
			<-n.watched
			n.change("a", stopped)
		}()
	}
	if r := n.run(t, "run", "a"); r.code != 0 || r.stderr != "" {
		t.Errorf("%+v", r)
	}
}

// A machine without a console, or one that ended at once: what it wrote is not
// lost.
func TestRunWithoutConsole(t *testing.T) {
	n := newFakeNode(t)
	n.logs = map[string]string{"console": "booted and gone\n"}
	ctx, interrupt := context.WithCancel(t.Context())
	env, out, errOut := n.env("")
	done := make(chan int, 1)
	go func() { done <- Main(ctx, env, []string{"run", "a"}) }()
	<-n.watched // the client waits for the end
	interrupt()
	code := <-done
	if code != exitFailed || out.String() != "booted and gone\n" || errOut.String() != "vmlet: interrupted: a runs on; to end it: vmlet stop a\n" {
		t.Errorf("code %d, %q, %q", code, out, errOut)
	}
}

func TestRunLeftAlone(t *testing.T) {
	n := newFakeNode(t)
	n.console = echoGuest
	user, wait := onTerminal(t, t.Context(), n, "run", "a", "--rm")
	expect(t, user, "login: ")
	typeKeys(t, user, "\x1d")
	if r := wait(); r.code != 0 || !strings.HasSuffix(r.stderr, "Left the console of a, which runs on.\n") {
		t.Errorf("%+v", r)
	}
	if calls := n.takeCalls(); slices.Contains(calls, `DeleteVM name:"a"`) {
		t.Errorf("calls %q", calls)
	}
}
