package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// maxReply bounds a reply in bytes: a list of machines with their cloud-init
// data may be larger than gRPC's own bound of 4 MiB.
const maxReply = 64 << 20

// client is a connection to the agent.
type client struct {
	nodev1.NodeServiceClient
	conn *grpc.ClientConn
}

// agent is where the commands find the agent.
type agent struct {
	*streams
	socket  string
	timeout time.Duration
	client  *client // nil before the first connect
}

// How long a command waits for an agent that is coming up, as `vmlet agent & vmlet run`
// has it; when it says so; and how often it looks. An agent listens within a second of its
// start, so the wait is for slow machines, and short where no agent runs at all.
const (
	agentWait   = 5 * time.Second
	agentNotice = time.Second
	agentPoll   = 50 * time.Millisecond
)

// connect returns the connection to the agent, making it the first time. It waits for an
// agent that is coming up.
func (a *agent) connect(ctx context.Context) (*client, error) { return a.connectWithin(ctx, agentWait) }

// connected is what a command runs once it has the connection.
func (a *agent) connected(do func(ctx context.Context, c *client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args)
	}
}

// connectWithin is connect with another limit; 0: it does not wait.
func (a *agent) connectWithin(ctx context.Context, wait time.Duration) (*client, error) {
	if a.client != nil {
		return a.client, nil
	}
	if a.timeout > 0 {
		wait = min(wait, a.timeout)
	}
	// gRPC tells what is wrong with a socket in words only: it is opened here.
	raw, err := a.dialWithin(ctx, wait)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &noAgentError{a.socket, err}
	}
	link := &link{socket: a.socket, first: raw, dial: a.Dial}
	conn, err := grpc.NewClient("passthrough:///vmlet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(link.next),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0), // hanging up is for the agent, see link
		grpc.WithUnaryInterceptor(a.unary(link)),
		grpc.WithStreamInterceptor(link.stream),
	)
	if err != nil {
		raw.Close()
		return nil, err
	}
	a.client = &client{nodev1.NewNodeServiceClient(conn), conn}
	return a.client, nil
}

// dialWithin dials until it succeeds or fails for another reason than that nobody listens
// yet. Only the pauses count towards the limit.
func (a *agent) dialWithin(ctx context.Context, wait time.Duration) (net.Conn, error) {
	for waited := time.Duration(0); ; waited += agentPoll {
		conn, err := a.Dial(ctx, a.socket)
		absent := errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
		if !absent || waited >= wait {
			return conn, err
		}
		if waited == agentNotice {
			a.notef("vmlet: no agent on %s yet: waiting up to %v for it", a.socket, wait)
		}
		if err := a.Sleep(ctx, agentPoll); err != nil {
			return nil, err
		}
	}
}

func (a *agent) close() {
	if a.client != nil {
		a.client.conn.Close()
	}
}

// dialUnix connects to a unix socket, by way of its folder if the path is too
// long for a socket address (unix(7): 108 bytes with the NUL at its end).
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) < len(unix.RawSockaddrUnix{}.Path) {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// unary gives every call its deadline and tells a lost agent from one that
// answers.
func (a *agent) unary(l *link) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if a.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
			defer cancel()
		}
		return l.explain(invoke(ctx, method, req, reply, cc, opts...))
	}
}

// link is the socket below gRPC. It notices when the other end hangs up: then,
// and only then, UNAVAILABLE is not the agent's word.
type link struct {
	socket string
	dial   func(ctx context.Context, socket string) (net.Conn, error)
	lost   atomic.Bool

	mu    sync.Mutex
	first net.Conn
}

func (l *link) next(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	conn := l.first
	l.first = nil
	l.mu.Unlock()
	if conn == nil {
		var err error
		if conn, err = l.dial(ctx, l.socket); err != nil {
			return nil, err
		}
	}
	return &linkConn{conn, l}, nil
}

func (l *link) explain(err error) error {
	if status.Code(err) == codes.Unavailable && l.lost.Load() {
		return &lostAgentError{l.socket, err}
	}
	return err
}

func (l *link) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, l.explain(err)
	}
	return &linkStream{s, l}, nil
}

type linkStream struct {
	grpc.ClientStream
	link *link
}

func (s *linkStream) RecvMsg(m any) error { return s.link.explain(s.ClientStream.RecvMsg(m)) }

type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.link.lost.Store(true)
	}
	return n, err
}

func (c *linkConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.link.lost.Store(true)
	}
	return n, err
}

// waitState waits until a machine is in a fitting state.
func (a *agent) waitState(ctx context.Context, c *client, name string, fits func(nodev1.State) bool) (*nodev1.VirtualMachine, error) {
	// The last event of the past comes too: what happens between a look and
	// the beginning of the watch is not missed.
	events, err := c.WatchEvents(ctx, &nodev1.WatchEventsRequest{Name: name, Follow: true, Tail: 1})
	if err != nil {
		return nil, err
	}
	for {
		r, err := c.GetVM(ctx, &nodev1.GetVMRequest{Name: name})
		if err != nil {
			return nil, err
		}
		if fits(r.GetVm().GetStatus().GetState()) {
			return r.GetVm(), nil
		}
		if _, err := events.Recv(); errors.Is(err, io.EOF) {
			return nil, &lostAgentError{a.socket, err} // it follows as long as it is there
		} else if err != nil {
			return nil, err
		}
	}
}
