package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/suites"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// uidsPerNode is how many user ids an agent has for its VMs.
	uidsPerNode = 100
	// firstUID is the first of all tests' ids. Each process of tests has its own,
	// for 100 nodes, as several may run side by side.
	firstUID       = 2_100_030_000
	uidsPerProcess = 100 * uidsPerNode
)

// nodes counts agents, which gives each its own user ids.
var nodes atomic.Uint32

// node is an agent with folders, user ids and cgroups of its own.
type node struct {
	t        *testing.T
	ctx      context.Context
	dir      string // all of it
	firstUID uint32
	cgroup   string
	bin      string   // the folder of its programs
	env      []string // more of its environment

	cmd    *exec.Cmd
	ended  chan struct{} // closed when the agent's process has
	api    nodev1.NodeServiceClient
	conn   *grpc.ClientConn
	events *journal[*nodev1.Event]
}

type nodeOptions struct {
	qemu   qemu
	config string // more lines of the agent's configuration
	// bin has the programs, and env more of their environment; empty: the usual ones.
	bin string
	env []string
}

// newNode starts an agent. When the test ends its VMs are ended and whatever is
// left behind is a fault.
func newNode(t *testing.T, o nodeOptions) *node {
	t.Helper()
	if why := unfit(); why != "" {
		t.Skip(why)
	}
	if o.qemu.binary == "" {
		o.qemu = newest(t)
	}
	// Not t.TempDir: a socket's path is to fit into its address.
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	n := &node{
		t: t, ctx: ctx, dir: dir, events: newJournal[*nodev1.Event](), bin: cmp.Or(o.bin, bin), env: o.env,
		firstUID: firstUID + uidsPerProcess*uint32(os.Getpid()%1000) + uidsPerNode*nodes.Add(1), cgroup: "/vmlet-" + filepath.Base(dir),
	}
	t.Cleanup(cancel)
	t.Cleanup(n.cleanUp)
	n.must(os.Chmod(dir, 0o711))
	config := fmt.Sprintf("qemu: {binary: %s}\nusers: {first: %d, count: %d}\ncgroup: {parent: %s, required: true}\n%s",
		o.qemu.binary, n.firstUID, uidsPerNode, n.cgroup, o.config)
	n.must(os.WriteFile(n.path("config.yaml"), []byte(config), 0o600))
	n.start()
	return n
}

// in lends the node to a subtest, which must not be parallel.
func (n *node) in(t *testing.T) *node {
	outer := n.t
	n.t = t
	t.Cleanup(func() { n.t = outer })
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }
func (n *node) socket() string             { return n.path("run", "vmlet.sock") }

// patient is a context for one thing to wait for.
func (n *node) patient() (context.Context, context.CancelFunc) {
	return suites.Wait(n.ctx, n.t, patience)
}

// command is the client, with the socket of this node's agent.
func (n *node) command(args ...string) *exec.Cmd { return n.program("vmlet", args...) }

// agent is the agent's program, with the socket of this node.
func (n *node) agent(args ...string) *exec.Cmd { return n.program("vmlet-agent", args...) }

func (n *node) program(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(n.ctx, filepath.Join(n.bin, name), args...)
	cmd.Env = append(append(os.Environ(), n.env...), "VMLET_SOCKET="+n.socket(), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// start starts the agent and waits until it serves.
func (n *node) start() {
	n.t.Helper()
	if err := n.tryStart(); err != nil {
		n.t.Fatal(err)
	}
	n.connect()
}

// tryStart starts the agent and returns when it serves, or has ended instead.
func (n *node) tryStart() error {
	n.t.Helper()
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.path("ready.sock"), Net: "unixgram"})
	n.must(err)
	defer os.Remove(n.path("ready.sock"))
	defer ready.Close()
	log, err := os.OpenFile(n.path("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.must(err)
	defer log.Close()

	n.cmd = n.agent("--state-dir", n.path("state"), "--run-dir", n.path("run"), "--config", n.path("config.yaml"), "--log-level", "debug")
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(unix.SIGTERM) }
	n.cmd.Env = append(n.cmd.Env, "NOTIFY_SOCKET="+n.path("ready.sock"))
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.must(n.cmd.Start())
	ended := make(chan struct{})
	n.ended = ended
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait() // looked at by its ProcessState
		close(ended)
		ready.Close()
	}(n.cmd)
	ctx, cancel := n.patient()
	defer cancel()
	defer context.AfterFunc(ctx, func() { ready.Close() })()
	if _, err := ready.Read(make([]byte, 64)); err != nil {
		return fmt.Errorf("the agent is not ready: %w, %v, %v", err, context.Cause(ctx), n.cmd.ProcessState)
	}
	return nil
}

// connect connects to the agent and follows its events.
func (n *node) connect() {
	n.t.Helper()
	conn, err := grpc.NewClient("unix:"+n.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	n.must(err)
	n.conn, n.api = conn, nodev1.NewNodeServiceClient(conn)
	stream, err := n.api.WatchEvents(n.ctx, &nodev1.WatchEventsRequest{Follow: true})
	n.must(err)
	_, err = stream.Header() // from now on nothing is missed
	n.must(err)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			n.events.add(m.GetEvent())
		}
	}()
}

// signal sends the agent a signal and waits until it has ended.
func (n *node) signal(s os.Signal) {
	n.t.Helper()
	n.must(n.cmd.Process.Signal(s))
	ctx, cancel := n.patient()
	defer cancel()
	select {
	case <-n.ended:
	case <-ctx.Done():
		n.t.Fatalf("the agent does not end after %v: %v", s, context.Cause(ctx))
	}
	n.conn.Close()
}

// alive says whether the agent's process is there.
func (n *node) alive() bool {
	if n.ended == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// event waits for an event from the given place in the journal on.
func (n *node) event(from int, what string, matches func(*nodev1.Event) bool) int {
	n.t.Helper()
	ctx, cancel := n.patient()
	defer cancel()
	after, err := n.events.next(ctx, from, matches)
	if err != nil {
		n.t.Fatalf("no event: %s: %v; there were %v", what, err, n.events.all()[min(from, len(n.events.all())):])
	}
	return after
}

// cleanUp ends what runs and looks for what is left.
func (n *node) cleanUp() {
	if n.alive() {
		n.endVMs()
		n.signal(unix.SIGTERM)
		if code := n.cmd.ProcessState.ExitCode(); code != 0 {
			n.t.Errorf("the agent ended with %v", n.cmd.ProcessState)
		}
		for _, left := range n.leftovers() {
			n.t.Errorf("left behind: %s", left)
		}
	} else if !n.t.Failed() {
		n.t.Errorf("the agent has ended before its time: %v", n.cmd.ProcessState)
	}
	log := n.log()
	if strings.Contains(log, "DATA RACE") {
		n.t.Errorf("the agent has a data race")
	}
	if n.t.Failed() {
		n.t.Logf("the agent's log:\n%s", tail(log, 16<<10))
	}
	n.sweep()
}

// log is all that the node's agents have logged, as far as it can be read.
func (n *node) log() string {
	log, _ := os.ReadFile(n.path("agent.log"))
	return string(log)
}

func tail(s string, most int) string { return s[max(0, len(s)-most):] }

func (n *node) endVMs() {
	ctx, cancel := n.patient()
	defer cancel()
	list, err := n.api.ListVMs(ctx, &nodev1.ListVMsRequest{})
	if err != nil {
		n.t.Errorf("listing what is to be ended: %v", err)
	}
	for _, vm := range list.GetVms() {
		name := vm.GetSpec().GetName()
		if _, err := n.api.KillVM(ctx, &nodev1.KillVMRequest{Name: name}); err != nil {
			n.t.Errorf("killing %s: %v", name, err)
		}
		if n.t.Failed() {
			n.t.Logf("%s was %v; its logs:\n%s", name, vm.GetStatus(), n.logs(name))
		}
		if _, err := n.api.DeleteVM(ctx, &nodev1.DeleteVMRequest{Name: name}); err != nil {
			n.t.Errorf("deleting %s: %v", name, err)
		}
	}
}

// logs are the ends of a VM's logs.
func (n *node) logs(name string) string {
	var all strings.Builder
	for _, log := range []string{"console", "vmm", "shim"} {
		stream, err := n.api.ReadLogs(n.ctx, &nodev1.ReadLogsRequest{Name: name, Log: log, TailLines: 20})
		fmt.Fprintf(&all, "--- %s %v\n", log, err)
		for err == nil {
			var m *nodev1.ReadLogsResponse
			if m, err = stream.Recv(); err == nil {
				all.Write(m.GetData())
			}
		}
	}
	return all.String()
}

// last reads a stream to its end and returns its last message.
func last[T any](stream grpc.ServerStreamingClient[T], err error) (*T, error) {
	var message *T
	for err == nil {
		var m *T
		if m, err = stream.Recv(); err == nil {
			message = m
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return message, err
}
