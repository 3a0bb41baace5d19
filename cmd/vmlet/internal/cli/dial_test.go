package cli

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAgentThatComesUp has sockets that nobody listens on yet, or ever.
func TestAgentThatComesUp(t *testing.T) {
	absent := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENOENT)}
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	denied := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
	const never = time.Hour
	for _, test := range []struct {
		name   string
		args   string
		err    error
		upIn   time.Duration // after so much waiting it listens
		code   int
		waited time.Duration
		told   bool
	}{
		{"is up", "list", absent, 0, exitOK, 0, false},
		{"no socket yet", "list", absent, 500 * time.Millisecond, exitOK, 500 * time.Millisecond, false},
		{"a predecessor's socket", "list", refused, 500 * time.Millisecond, exitOK, 500 * time.Millisecond, false},
		{"slow", "list", absent, 3 * time.Second, exitOK, 3 * time.Second, true},
		{"none", "list", absent, never, exitNoAgent, agentWait, true},
		{"not allowed", "list", denied, never, exitNoAgent, 0, false},
		{"a shorter timeout", "list --timeout 500ms", absent, never, exitNoAgent, 500 * time.Millisecond, false},
		{"the version", "version", absent, never, exitOK, 0, false},
		{"completion", "__complete stop ", absent, never, exitOK, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newFakeNode(t)
			env, _, stderr := n.env("")
			var waited time.Duration
			env.Sleep = func(_ context.Context, d time.Duration) error {
				waited += d
				return nil
			}
			env.Dial = func(ctx context.Context, socket string) (net.Conn, error) {
				if waited < test.upIn {
					return nil, test.err
				}
				return dialUnix(ctx, socket)
			}
			code := Main(t.Context(), env, strings.Split(test.args, " "))
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, stderr)
			}
			if waited != test.waited {
				t.Errorf("it waited %v, want %v", waited, test.waited)
			}
			if told := strings.Contains(stderr.String(), "no agent on "+n.socket+" yet: waiting up to 5s for it"); told != test.told {
				t.Errorf("it said that it waits: %v, want %v: %s", told, test.told, stderr)
			}
		})
	}
}

func TestWaitForTheAgentIsInterrupted(t *testing.T) {
	n := newFakeNode(t)
	env, _, stderr := n.env("")
	ctx, interrupt := context.WithCancel(t.Context())
	env.Sleep = func(ctx context.Context, _ time.Duration) error {
		interrupt()
		return ctx.Err()
	}
	if code := Main(ctx, env, []string{"list", "--socket", "/nonexistent/s"}); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if want := "vmlet: interrupted\n"; stderr.String() != want {
		t.Errorf("it says %q, want %q", stderr, want)
	}
}
