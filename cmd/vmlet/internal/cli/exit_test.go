package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func faultySpec(t *testing.T, message string) error {
	t.Helper()
	s, err := status.New(codes.InvalidArgument, message).WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "memory.size", Description: `"x": not a quantity`},
			{Field: "disks[1].path", Description: "/a: no such file"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestExitCodesAndErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.yaml", "name: new\n"), write("bad.yaml", "name: a\nmemroy: 1\n")
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	deaf := deafSocket(t)

	for _, test := range []struct {
		name string
		args []string
		fail map[string]error
		code int
		want []string // lines of stderr, or their beginnings
	}{
		{"done", []string{"list"}, nil, 0, nil},
		{"help", []string{"stop", "--help"}, nil, 0, nil},
		{"unknown command", []string{"lsit"}, nil, 2, []string{`vmlet: unknown command "lsit": is "list" meant?`, "See: vmlet --help"}},
		{"one of two commands", []string{"lst"}, nil, 2, []string{`vmlet: unknown command "lst": is "get" or "list" meant?`, "See: vmlet --help"}},
		{"unknown subcommand", []string{"image", "eat"}, nil, 2, []string{`vmlet: unknown command "eat" for "vmlet image"`, "See: vmlet image --help"}},
		{"unknown flag", []string{"list", "--bogus"}, nil, 2, []string{"vmlet: unknown flag: --bogus", "See: vmlet list --help"}},
		{"bad flag value", []string{"list", "-o", "xml"}, nil, 2, []string{`vmlet: --output xml: one of table, wide, json, yaml, name is wanted`, "See:"}},
		{"not a number", []string{"run", "a", "--cpus", "-1"}, nil, 2, []string{"vmlet: --cpus -1: a whole number, 0 or more, is wanted", "See:"}},
		{"not a duration", []string{"stop", "web", "--grace", "3"}, nil, 2, []string{"vmlet: --grace 3: a number with a unit is wanted, such as 90s", "See:"}},
		{"an empty folder's name", []string{"save", "web", ""}, nil, 2, []string{"vmlet: DIR is empty: a path is wanted", "See:"}},
		{"an empty disk's name", []string{"attach", "disk", "web", ""}, nil, 2, []string{"vmlet: PATH is empty: a path is wanted", "See:"}},
		{"unknown shell", []string{"completion", "foo"}, nil, 2, []string{`vmlet: unknown command "foo"`, "See: vmlet completion --help"}},
		{"help for nothing", []string{"help", "lsit"}, nil, 2, []string{`vmlet: unknown command "lsit": is "list" meant?`, "See:"}},
		{"help for a command", []string{"help", "attach", "disk"}, nil, 0, nil},
		{"an argument too many", []string{"save", "a", "b", "c"}, nil, 2, []string{"vmlet: wrong number of arguments (3): want vmlet save NAME DIR [flags]", "See:"}},
		{"no argument", []string{"stop"}, nil, 2, []string{"vmlet: wrong number of arguments (0): want vmlet stop NAME... [flags]", "See:"}},
		{"exclusive flags", []string{"logs", "web", "--vmm", "--shim"}, nil, 2, []string{"vmlet: if any flags in the group [vmm shim]", "See:"}},
		{"bad option value", []string{"run", "a", "--disk", "/a,x=y"}, nil, 2, []string{`vmlet: --disk /a,x=y: "x" is no option`, "See:"}},
		{"detach and rm", []string{"run", "a", "-d", "--rm"}, nil, 2, []string{"vmlet: --rm needs someone", "See:"}},
		{"no name", []string{"run"}, nil, 2, []string{"vmlet: the machine needs a name", "See:"}},
		{"two names", []string{"run", "a", "--name", "b"}, nil, 2, []string{`vmlet: two names, "a" and --name "b"`, "See:"}},
		{"negative grace", []string{"stop", "web", "--grace=-1s"}, nil, 2, []string{"vmlet: --grace -1s", "See:"}},
		{"bad escape", []string{"console", "web", "--escape", "abc"}, nil, 2, []string{`vmlet: --escape: "abc" is no escape key`, "See:"}},
		{"create without a file", []string{"create"}, nil, 2, []string{"vmlet: which specification?", "See:"}},

		{"bad file", []string{"create", "-f", good, "-f", bad}, nil, 1, []string{"vmlet: " + bad + ":2: memroy: no such field"}},
		{"no file", []string{"create", "-f", filepath.Join(dir, "none")}, nil, 1, []string{"vmlet: open " + dir}},
		{"a folder", []string{"create", "-f", dir}, nil, 1, []string{"vmlet: read " + dir + ": is a directory"}},
		{"no user-data", []string{"run", "a", "--cloud-init", filepath.Join(dir, "none")}, nil, 1, []string{"vmlet: --cloud-init: open "}},
		{"faults of fields", []string{"create", "-f", good}, map[string]error{"CreateVM": faultySpec(t, "the specification has 2 faults")}, 1,
			[]string{"vmlet: " + good + ": the specification has 2 faults", `  memory.size: "x": not a quantity`, "  disks[1].path: /a: no such file"}},
		{"faults that are the message", []string{"create", "-f", good},
			map[string]error{"CreateVM": faultySpec(t, "memory.size: \"x\": not a quantity\ndisks[1].path: /a: no such file")}, 1,
			[]string{"vmlet: " + good + ": 2 faults:", `  memory.size: "x": not a quantity`, "  disks[1].path: /a: no such file"}},
		{"faults in the message", []string{"create", "-f", good},
			map[string]error{"CreateVM": faultySpec(t, "no VMM can:\n- qemu: memory.size: \"x\": not a quantity\n  disks[1].path: /a: no such file\n- other: gone")}, 1,
			[]string{"vmlet: " + good + ": no VMM can:", `- qemu: memory.size: "x": not a quantity`, "  disks[1].path: /a: no such file", "- other: gone"}},
		{"cancelled by the agent", []string{"pause", "web"}, map[string]error{"PauseVM": status.Error(codes.Canceled, "the agent ends")}, 1, []string{"vmlet: the agent ends"}},
		{"wrong state", []string{"start", "web"}, nil, 1, []string{`vmlet: vm "web" is running: not now`}},
		{"terminal codes", []string{"list"}, map[string]error{"ListVMs": status.Error(codes.Internal, "a\x1b[2Jb")}, 1, []string{`vmlet: a\x1b[2Jb`}},
		{"old agent", []string{"list"}, map[string]error{"ListVMs": status.Error(codes.Unimplemented, "unknown method")}, 1, []string{"vmlet: the agent does not know this request"}},
		{"VMM does not answer", []string{"pause", "web"}, map[string]error{"PauseVM": status.Error(codes.Unavailable, "its VMM does not answer")}, 1, []string{"vmlet: its VMM does not answer"}},

		{"no such VM", []string{"get", "nope"}, nil, 3, []string{`vmlet: no vm "nope"`}},
		{"no such VM, streaming", []string{"logs", "nope"}, nil, 3, []string{`vmlet: no vm "nope"`}},
		{"no such VM, console", []string{"console", "nope"}, nil, 3, []string{`vmlet: no vm "nope"`}},
		{"two of the same kind", []string{"kill", "x", "y"}, nil, 3, []string{`vmlet: no vm "x"`, `vmlet: no vm "y"`}},
		{"two of two kinds", []string{"start", "x", "web"}, nil, 1, []string{`vmlet: no vm "x"`, `vmlet: vm "web" is running`}},

		{"no socket", []string{"list", "--socket", "/nonexistent/s"}, nil, 4, []string{
			"vmlet: no agent on /nonexistent/s yet: waiting up to 5s for it", "vmlet: cannot reach the agent on /nonexistent/s: no such file; start one with: vmlet agent, or systemctl start vmlet",
		}},
		{"nobody listens", []string{"list", "--socket", dead}, nil, 4, []string{
			"vmlet: no agent on " + dead + " yet: waiting up to 5s for it", "vmlet: cannot reach the agent on " + dead + ": no process listens there; start one with: vmlet agent",
		}},
		{"hangs up", []string{"list", "--socket", deaf}, nil, 4, []string{"vmlet: the agent on " + deaf + " closed the connection"}},
		{"hangs up, streaming", []string{"events", "--socket", deaf}, nil, 4, []string{"vmlet: the agent on " + deaf + " closed the connection"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newFakeNode(t, machine("web", runs))
			n.fail = test.fail
			r := n.run(t, test.args...)
			if r.code != test.code {
				t.Errorf("exit code %d, want %d", r.code, test.code)
			}
			lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
			if r.stderr == "" {
				lines = nil
			}
			if len(lines) != len(test.want) {
				t.Fatalf("stderr %q, want %q", lines, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("stderr line %d is %q, want %q", i, lines[i], want)
				}
			}
			if strings.Contains(r.stderr, "rpc error") {
				t.Errorf("gRPC's words: %s", r.stderr)
			}
		})
	}
}

func TestPermissionDenied(t *testing.T) {
	a := newApp(Env{})
	a.running = true
	code, text := a.explain(t.Context(), &noAgentError{"/run/vmlet/vmlet.sock", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", os.ErrPermission)}})
	if code != exitNoAgent || !strings.Contains(text, "permission denied to uid") || !strings.Contains(text, "run this as root") {
		t.Errorf("%d %s", code, text)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputLost: what can't be written is no success, and what streams ends.
func TestOutputLost(t *testing.T) {
	n := newFakeNode(t, machine("web", runs))
	for _, args := range []string{"list", "list -o name", "get web", "node", "stop web", "events -f", "events -f -o name", "version"} {
		env, _, stderr := n.env("")
		env.Stdout = full{}
		if code := Main(t.Context(), env, strings.Fields(args)); code != exitFailed || !strings.Contains(stderr.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestTimeout(t *testing.T) {
	n := newFakeNode(t, machine("web", runs))
	n.fail = map[string]error{"StopVM": status.Error(codes.DeadlineExceeded, "deadline")}
	r := n.run(t, "--timeout=10s", "stop", "web")
	if r.code != exitFailed || !strings.HasPrefix(r.stderr, "vmlet: no reply within 10s (--timeout): the agent may still do it") {
		t.Errorf("%+v", r)
	}
}

func TestLongSocketPath(t *testing.T) {
	n := newFakeNode(t, machine("web", runs))
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.socket, filepath.Join(long, "vmlet.sock")); err != nil {
		t.Fatal(err)
	}
	if r := n.run(t, "list", "-o", "name", "--socket", filepath.Join(long, "vmlet.sock")); r.code != 0 || r.stdout != "web\n" {
		t.Errorf("%+v", r)
	}
	if r := n.run(t, "list", "--socket", filepath.Join(long, "none", "vmlet.sock")); r.code != exitNoAgent || !strings.Contains(r.stderr, "no such file; start one with") {
		t.Errorf("%+v", r)
	}
}
