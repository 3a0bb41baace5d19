package nodes

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// aliveEvery and alivePatience have a dead agent found within their sum. An agent
	// ends connections that ask more often than it likes.
	aliveEvery    = 10 * time.Second
	alivePatience = 5 * time.Second
	// window and buffer are bytes per connection, and window per stream, too. gRPC would adapt
	// the window to what comes, which a hostile agent decides.
	window = 64 << 10
	buffer = 4 << 10
	// maxHeaders bounds headers and trailers, in bytes.
	maxHeaders = 16 << 10
	// idleAfter is when a connection over which nobody calls is closed; the next call opens it.
	idleAfter = 5 * time.Minute
)

// newConn makes a connection to the agent of a node, whose name its certificate has to have. It
// connects when it is used.
func newConn(config *tls.Config, node string, e Endpoint) (*grpc.ClientConn, error) {
	config = config.Clone()
	config.ServerName = node + contract.AgentNameSuffix
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = firstRetry, lastRetry
	return grpc.NewClient("passthrough:///"+e.Address,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: headerPatience}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: aliveEvery, Timeout: alivePatience}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
		grpc.WithIdleTimeout(idleAfter),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
}

// Connections are to agents that are called now and then, and not followed. Its methods may be
// called concurrently.
type Connections struct {
	tls *tls.Config

	mu    sync.Mutex
	nodes map[string]*connection
}

// connection is shared by all that call one agent.
type connection struct {
	endpoint Endpoint
	conn     *grpc.ClientConn
	users    int
	// replaced: the agent is elsewhere by now. Who uses it goes on.
	replaced bool
}

// NewConnections makes Connections. The configuration has the client's certificate and whom it
// trusts; the name that an agent's certificate must have is filled in for each.
func NewConnections(config *tls.Config) *Connections {
	return &Connections{tls: config, nodes: make(map[string]*connection)}
}

// Client calls the agent of a node that is at an endpoint, about the VM of a pod. done is to be called when nothing is
// called any more.
func (c *Connections) Client(node string, e Endpoint, pod types.UID) (client nodev1.NodeServiceClient, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := c.nodes[node]
	if shared != nil && shared.endpoint != e {
		shared.replaced = true
		c.drop(shared)
		shared = nil
	}
	if shared == nil {
		conn, err := newConn(c.tls, node, e)
		if err != nil {
			return nil, nil, fmt.Errorf("agent of node %s: %w", node, err)
		}
		shared = &connection{endpoint: e, conn: conn}
		c.nodes[node] = shared
	}
	shared.users++
	return clientFor(shared.conn, pod), sync.OnceFunc(func() { c.leave(shared) }), nil
}

func (c *Connections) leave(shared *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared.users--
	c.drop(shared)
}

// drop closes a connection that nobody needs any more; c.mu is held. One that may be needed
// again gRPC closes when it is idle.
func (c *Connections) drop(shared *connection) {
	if shared.replaced && shared.users == 0 {
		shared.conn.Close()
	}
}

// podConn is a connection for calls about the VM of one pod. VMs are named by their pods' names, which another pod may have
// by the time that a call comes: agents refuse it then.
type podConn struct {
	grpc.ClientConnInterface
	pod types.UID
}

// clientFor calls an agent about the VM of a pod.
func clientFor(conn grpc.ClientConnInterface, pod types.UID) nodev1.NodeServiceClient {
	return nodev1.NewNodeServiceClient(podConn{conn, pod})
}

func (c podConn) of(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, contract.MetadataPodUID, string(c.pod))
}

// Invoke makes a call.
func (c podConn) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	return c.ClientConnInterface.Invoke(c.of(ctx), method, args, reply, options...)
}

// NewStream begins a call that streams.
func (c podConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(c.of(ctx), desc, method, options...)
}
