package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// callAs, in the environment, makes this test program a client of the socket
// that it names: it exits with the code of its call.
const callAs = "VMLET_TEST_CALL"

func TestMain(m *testing.M) {
	if socket := os.Getenv(callAs); socket != "" {
		os.Exit(int(call(socket)))
	}
	os.Exit(m.Run())
}

func call(socket string) codes.Code {
	conn, err := dialAPI(socket)
	if err != nil {
		return codes.Internal
	}
	defer conn.Close()
	_, err = nodev1.NewNodeServiceClient(conn).ListVMs(context.Background(), &nodev1.ListVMsRequest{})
	return status.Code(err)
}

func dialAPI(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// serveTest serves an agent's API as Run does.
func (a *testAgent) serveTest(t *testing.T, socket string, allowed []uint32) nodev1.NodeServiceClient {
	t.Helper()
	return serveNode(t, socket, allowed, &NodeService{VMs: a.Manager, Node: a.node, NodeName: os.Hostname})
}

func serveNode(t *testing.T, socket string, allowed []uint32, service *NodeService) nodev1.NodeServiceClient {
	t.Helper()
	l, err := Listen(socket, allowed)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(PeerUsers(allowed), slog.New(slog.DiscardHandler))
	nodev1.RegisterNodeServiceServer(server, service)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := dialAPI(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return nodev1.NewNodeServiceClient(conn)
}

// TestCallers calls as other users. The socket is opened to all, as a mistake
// of an administrator might, so that it is the credentials that decide.
func TestCallers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("calling as others needs root")
	}
	dir, err := os.MkdirTemp("", "vmlet-callers")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "client")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.WriteFile(program, self, 0o755), os.Chmod(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	// What an earlier agent left is in the way.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	newWorld(t).start().serveTest(t, socket, []uint32{4242})
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm()&0o007 != 0 {
		t.Errorf("the socket's mode is %v, %v", st.Mode(), err)
	}
	as := func(uid uint32) codes.Code {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), callAs+"="+socket)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return codes.Code(cmd.ProcessState.ExitCode())
	}
	if got := as(4242); got != codes.OK {
		t.Errorf("a user who is allowed: %v", got)
	}
	if got := as(4343); got != codes.Unavailable {
		t.Errorf("another user, through a closed socket: %v", got)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]codes.Code{0: codes.OK, 4242: codes.OK, 4343: codes.PermissionDenied} {
		if got := as(uid); got != want {
			t.Errorf("user %d: %v, want %v", uid, got, want)
		}
	}
}

func TestAPI(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	c := a.serveTest(t, filepath.Join(t.TempDir(), "s"), nil)
	ctx := t.Context()

	_, err := c.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: &specv1.VirtualMachineSpec{Name: "Web", Memory: &specv1.Memory{Size: "much"}}})
	fields := make(map[string]bool)
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields[v.GetField()] = true
			}
		}
	}
	if status.Code(err) != codes.InvalidArgument || !fields["name"] || !fields["memory.size"] {
		t.Errorf("two faults: %v, fields %v", err, fields)
	}
	for _, name := range []string{"web", "db"} {
		if _, err := c.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: vmtest.Spec(name)}); err != nil {
			t.Fatal(err)
		}
	}
	start, err := c.StartVM(ctx, &nodev1.StartVMRequest{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := start.Recv(); err != nil || p.GetProgress().GetStep() != "vmm" {
		t.Errorf("progress: %v, %v", p, err)
	}
	if p, err := start.Recv(); err != nil || p.GetVm().GetStatus().GetState() != nodev1.State_STATE_RUNNING {
		t.Errorf("the end: %v, %v", p, err)
	}
	if _, err := start.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	for selector, want := range map[string]int{"": 2, "app=web": 2, "app!=web": 0} {
		if list, err := c.ListVMs(ctx, &nodev1.ListVMsRequest{LabelSelector: selector}); err != nil || len(list.GetVms()) != want {
			t.Errorf("list %q: %v, %v", selector, list, err)
		}
	}
	_, err = c.ListVMs(ctx, &nodev1.ListVMsRequest{LabelSelector: "a in (b)"})
	vmtest.WantCode(t, "a selector that is none", err, codes.InvalidArgument)
	node, err := c.GetNode(ctx, &nodev1.GetNodeRequest{})
	if err != nil || len(node.GetHypervisors()) != 2 || node.GetVmms()[0].GetVersion() != "7.2.0" {
		t.Errorf("node: %v, %v", node, err)
	}
	name, err := c.GetVmmName(ctx, &nodev1.GetVmmNameRequest{})
	if err != nil || name.GetName() != "qemu" {
		t.Errorf("VMM: %v, %v", name, err)
	}
	if v, err := c.GetVmmVersion(ctx, &nodev1.GetVmmVersionRequest{Name: name.GetName()}); err != nil || v.GetVersion() != "7.2.0" {
		t.Errorf("version: %v, %v", v, err)
	}
	_, err = c.GetVmmVersion(ctx, &nodev1.GetVmmVersionRequest{Name: "bochs"})
	vmtest.WantCode(t, "the version of what there is not", err, codes.InvalidArgument)
	apiEvents(t, c)
	apiConsole(t, c)
	apiLogs(t, w, c)
}

func apiEvents(t *testing.T, c nodev1.NodeServiceClient) {
	past, err := c.WatchEvents(t.Context(), &nodev1.WatchEventsRequest{Name: "web", Tail: 1})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := past.Recv(); err != nil || e.GetEvent().GetState() != nodev1.State_STATE_RUNNING {
		t.Errorf("the last event: %v, %v", e, err)
	}
	if _, err := past.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the past: %v", err)
	}
	follow, err := c.WatchEvents(t.Context(), &nodev1.WatchEventsRequest{Follow: true})
	if err == nil {
		_, err = follow.Header() // the subscription stands
	}
	if err == nil {
		_, err = c.PauseVM(t.Context(), &nodev1.PauseVMRequest{Name: "web"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if e, err := follow.Recv(); err != nil || e.GetEvent().GetState() != nodev1.State_STATE_PAUSED {
		t.Errorf("the next event: %v, %v", e, err)
	}
}

func apiConsole(t *testing.T, c nodev1.NodeServiceClient) {
	console, err := c.AttachConsole(t.Context())
	if err == nil {
		err = console.Send(&nodev1.AttachConsoleRequest{Name: "web", Data: []byte("hello")})
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, err := console.Recv(); err != nil || string(m.GetData()) != vmtest.Backlog {
		t.Errorf("the console begins with %q, %v, want what was printed before", m.GetData(), err)
	}
	if m, err := console.Recv(); err != nil || string(m.GetData()) != "hello" {
		t.Errorf("the console echoed %q, %v", m.GetData(), err)
	}
	live, err := c.AttachConsole(t.Context())
	if err == nil {
		err = live.Send(&nodev1.AttachConsoleRequest{Name: "web", Data: []byte("hello"), SkipBacklog: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, err := live.Recv(); err != nil || string(m.GetData()) != "hello" {
		t.Errorf("the console without what was printed before begins with %q, %v", m.GetData(), err)
	}
	takeOver := func() grpc.BidiStreamingClient[nodev1.AttachConsoleRequest, nodev1.AttachConsoleResponse] {
		t.Helper()
		stream, err := c.AttachConsole(t.Context())
		if err == nil {
			err = stream.Send(&nodev1.AttachConsoleRequest{Name: "web", Sharing: nodev1.Sharing_SHARING_TAKE_OVER, SkipBacklog: true})
		}
		if err == nil {
			_, err = stream.Header() // it is attached, though nothing is printed
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	first := takeOver()
	takeOver()
	_, err = first.Recv()
	vmtest.WantCode(t, "a console that another client took over", err, codes.Aborted)
	if err := console.Send(&nodev1.AttachConsoleRequest{Data: []byte("still")}); err != nil {
		t.Fatal(err)
	}
	if m, err := console.Recv(); err != nil || string(m.GetData()) != "still" {
		t.Errorf("one that stands beside them echoed %q, %v", m.GetData(), err)
	}
	stopped, err := c.AttachConsole(t.Context())
	if err == nil {
		err = stopped.Send(&nodev1.AttachConsoleRequest{Name: "db"})
	}
	if err == nil {
		_, err = stopped.Recv()
	}
	vmtest.WantCode(t, "the console of a VM that doesn't run", err, codes.FailedPrecondition)
}

func apiLogs(t *testing.T, w *world, c nodev1.NodeServiceClient) {
	path := filepath.Join(w.StateDir, "vms/web", shim.VMMLogName)
	if err := os.WriteFile(path, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(r *nodev1.ReadLogsRequest) (string, error) {
		stream, err := c.ReadLogs(t.Context(), r)
		var all strings.Builder
		for err == nil {
			var m *nodev1.ReadLogsResponse
			m, err = stream.Recv()
			all.Write(m.GetData())
		}
		return all.String(), err
	}
	if got, err := read(&nodev1.ReadLogsRequest{Name: "web", Log: "vmm", TailLines: 1}); got != "b\n" || !errors.Is(err, io.EOF) {
		t.Errorf("log %q, %v", got, err)
	}
	_, err := read(&nodev1.ReadLogsRequest{Name: "web", Log: "../vm.json"})
	vmtest.WantCode(t, "a log that there is not", err, codes.InvalidArgument)
}

// faulty panics where it is called.
type faulty struct {
	nodev1.UnimplementedNodeServiceServer
}

func (faulty) ListVMs(context.Context, *nodev1.ListVMsRequest) (*nodev1.ListVMsResponse, error) {
	panic("oh")
}

func (faulty) WatchEvents(*nodev1.WatchEventsRequest, grpc.ServerStreamingServer[nodev1.WatchEventsResponse]) error {
	panic("oh")
}

// TestPanic: a call that panics fails, and those after it are served.
func TestPanic(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := NewServer(PeerUsers(nil), slog.New(slog.NewTextHandler(&log, nil)))
	nodev1.RegisterNodeServiceServer(server, faulty{})
	go server.Serve(l)
	conn, err := dialAPI(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := nodev1.NewNodeServiceClient(conn)
	for range 2 {
		_, err := c.ListVMs(t.Context(), &nodev1.ListVMsRequest{})
		vmtest.WantCode(t, "a call that panics", err, codes.Internal)
		stream, err := c.WatchEvents(t.Context(), &nodev1.WatchEventsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		vmtest.WantCode(t, "a stream that panics", err, codes.Internal)
	}
	large := &nodev1.CreateVMRequest{Spec: &specv1.VirtualMachineSpec{Name: strings.Repeat("x", maxRequest)}}
	_, err = c.CreateVM(t.Context(), large)
	vmtest.WantCode(t, "a request that is too large", err, codes.ResourceExhausted)
	server.Stop() // nobody logs any more
	if n := strings.Count(log.String(), "panic=oh"); n != 4 || !strings.Contains(log.String(), "faulty.ListVMs") {
		t.Errorf("4 panics are logged %d times, or without where: %s", n, log.String())
	}
}

// TestListenLeavesAnotherAgent wants the socket of one that serves left alone,
// a stale one replaced, and what is no socket refused.
func TestListenLeavesAnotherAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmlet.sock")
	first, err := Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Listen(path, nil); err == nil {
		second.Close()
		t.Fatal("a second agent took the socket of one that serves")
	}
	first.Close() // and leaves its file, as a killed agent does
	third, err := Listen(path, nil)
	if err != nil {
		t.Fatalf("a stale socket is in the way: %v", err)
	}
	third.Close()
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(file, nil); err == nil {
		l.Close()
		t.Fatal("a file was replaced by a socket")
	}
}
