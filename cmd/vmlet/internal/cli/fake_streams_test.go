package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/printed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (n *fakeNode) WatchEvents(r *nodev1.WatchEventsRequest, s grpc.ServerStreamingServer[nodev1.WatchEventsResponse]) error {
	n.mu.Lock()
	past := n.events[len(n.events)-min(int(r.Tail), len(n.events)):]
	w := make(chan *nodev1.WatchEventsResponse, 100)
	for _, e := range past {
		w <- &nodev1.WatchEventsResponse{Event: e}
	}
	if r.Follow {
		n.watchers = append(n.watchers, w)
		if len(n.watchers) == 1 {
			close(n.watched)
		}
	} else {
		close(w)
	}
	n.mu.Unlock()
	for {
		select {
		case m, ok := <-w:
			if !ok {
				return nil
			}
			if r.Name != "" && m.Event.Vm != r.Name {
				continue
			}
			if err := s.Send(m); err != nil {
				return err
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (n *fakeNode) AttachConsole(s grpc.BidiStreamingServer[nodev1.AttachConsoleRequest, nodev1.AttachConsoleResponse]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if _, err := n.change(first.Name, stateUnset, runs, isPaused); err != nil {
		return err
	}
	if n.console == nil {
		return status.Error(codes.FailedPrecondition, "it has no console: devices.console is off")
	}
	in := make(chan []byte)
	go func() {
		defer close(in)
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case in <- m.Data:
			case <-s.Context().Done():
				return
			}
		}
	}()
	n.console(in, func(text string) { s.Send(&nodev1.AttachConsoleResponse{Data: []byte(text)}) })
	return nil
}

func (n *fakeNode) ReadLogs(r *nodev1.ReadLogsRequest, s grpc.ServerStreamingServer[nodev1.ReadLogsResponse]) error {
	if _, err := n.change(r.Name, stateUnset); err != nil {
		return err
	}
	for _, line := range strings.SplitAfter(n.logs[r.Log], "\n") {
		if err := s.Send(&nodev1.ReadLogsResponse{Data: []byte(line)}); err != nil {
			return err
		}
	}
	return nil
}

// result is what a run of the client left.
type result struct {
	code           int
	stdout, stderr string
}

// env returns surroundings in which the node is the one there is.
func (n *fakeNode) env(stdin string) (env Env, stdout, stderr *printed.Text) {
	e := SystemEnv("v0.0.0-test")
	var out, err printed.Text
	e.Stdin, e.Stdout, e.Stderr = strings.NewReader(stdin), &out, &err
	e.Now = testNow
	e.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	e.Getenv = func(key string) string {
		if key == "VMLET_SOCKET" {
			return n.socket
		}
		return ""
	}
	return e, &out, &err
}

func (n *fakeNode) run(t *testing.T, args ...string) result {
	t.Helper()
	return n.runInput(t, "", args...)
}

func (n *fakeNode) runInput(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	env, out, err := n.env(stdin)
	code := Main(t.Context(), env, args)
	return result{code, out.String(), err.String()}
}

// takeCalls returns the calls since the last time.
func (n *fakeNode) takeCalls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls
	n.calls = nil
	return calls
}

// squeeze takes out the white space that prototext puts in at random.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// golden compares with a file in testdata, or writes it if UPDATE_GOLDEN is set.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (UPDATE_GOLDEN=1 writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// deafSocket is a socket whose other end hangs up at once.
func deafSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return path
}

func imageAt(path string) *nodev1.ImageReference { return &nodev1.ImageReference{Path: path} }
