package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/endpoints"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Bounds of what comes over the network.
const (
	// handshakePatience is for TLS and HTTP/2's beginning, together.
	handshakePatience = 5 * time.Second
	// maxHandshakes are under way at once; one more, and the one that has lasted longest of the
	// address that has the most is cut off. So strangers who begin and don't go on, however many
	// at a time, keep nobody out. Each may take 300 KiB.
	maxHandshakes = 16
	// maxConnections are those that are accepted. Programs need few of them: each replica of
	// vmlet-api and vmlet-controller has one.
	maxConnections = 64 + maxHandshakes
	// maxStreams are calls at once over one connection: consoles are calls, too.
	maxStreams = 512
	// maxNetworkRequest and maxHeaders are bytes: no specification comes this way.
	maxNetworkRequest = 64 << 10
	maxHeaders        = 16 << 10
	// pingsApart is how often clients may ask whether the agent is alive; deadAfter and
	// deadPatience are when the agent asks, and when it gives a client up.
	pingsApart   = 5 * time.Second
	deadAfter    = 30 * time.Second
	deadPatience = 15 * time.Second
)

// ListenNetwork listens at an address, HOST:PORT, for a bounded number of connections.
func ListenNetwork(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: another program has the port: choose another address, or off", err)
	}
	if err != nil {
		return nil, err
	}
	return bounded(l), nil
}

func bounded(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConnections) }

// Programs lets vmlet's programs in, who come over the network with certificates: those that
// are named. A connection lasts no longer than the certificate by which it was made.
type Programs struct {
	config  *tls.Config
	names   []string
	waiting waiting
}

// NewPrograms makes one. The configuration has the server's certificate, and verifies
// those of clients.
func NewPrograms(config *tls.Config, names ...string) *Programs {
	return &Programs{config: config, names: names}
}

// Options are a server's for those who come this way.
func (p *Programs) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakePatience),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxNetworkRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsApart, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: deadAfter, Timeout: deadPatience}),
	}
}

// Credentials shake hands, and refuse clients of other names.
func (p *Programs) Credentials() credentials.TransportCredentials {
	return &programCredentials{TransportCredentials: credentials.NewTLS(p.config), programs: p}
}

// Authenticate refuses the methods that are not for the network.
func (p *Programs) Authenticate(ctx context.Context, method string) error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, "client certificate unavailable")
	}
	who, ok := from.AuthInfo.(visitor)
	if !ok {
		return status.Error(codes.Unauthenticated, "client certificate unavailable")
	}
	if !networkMethods()[method] {
		return status.Errorf(codes.PermissionDenied, "%s may not call %s over the network: it is served on the node's own socket", who.name, method)
	}
	return nil
}

// fromNetwork says whether a call is that of a program of the cluster.
func fromNetwork(ctx context.Context) bool {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	_, is := from.AuthInfo.(visitor)
	return is
}

// networkMethods are those that the cluster's programs may call. What makes, starts or
// forgets a VM, or names a file of the node, is not among them: a pod's VM is made by its
// pod. SaveVM is served there for VMs in pods alone, see NodeService.checkSave.
func networkMethods() map[string]bool {
	return map[string]bool{
		nodev1.NodeService_GetVM_FullMethodName:           true,
		nodev1.NodeService_ListVMs_FullMethodName:         true,
		nodev1.NodeService_WatchEvents_FullMethodName:     true,
		nodev1.NodeService_WatchVMs_FullMethodName:        true,
		nodev1.NodeService_ConfirmPodEnded_FullMethodName: true,
		nodev1.NodeService_PauseVM_FullMethodName:         true,
		nodev1.NodeService_ResumeVM_FullMethodName:        true,
		nodev1.NodeService_ResetVM_FullMethodName:         true,
		nodev1.NodeService_StopVM_FullMethodName:          true,
		nodev1.NodeService_ResizeVM_FullMethodName:        true,
		nodev1.NodeService_SaveVM_FullMethodName:          true,
		nodev1.NodeService_SuspendVM_FullMethodName:       true,
		nodev1.NodeService_RenewVM_FullMethodName:         true,
		nodev1.NodeService_KillVM_FullMethodName:          true,
		nodev1.NodeService_AttachConsole_FullMethodName:   true,
		nodev1.NodeService_DialGuest_FullMethodName:       true,
		nodev1.NodeService_AttachDisplay_FullMethodName:   true,
		nodev1.NodeService_TakeScreenshot_FullMethodName:  true,
		nodev1.NodeService_RebootVM_FullMethodName:        true,
		nodev1.NodeService_GetGuest_FullMethodName:        true,
		nodev1.NodeService_FreezeGuest_FullMethodName:     true,
		nodev1.NodeService_ThawGuest_FullMethodName:       true,
		nodev1.NodeService_ReadLogs_FullMethodName:        true,
		nodev1.NodeService_GetNode_FullMethodName:         true,
		nodev1.NodeService_GetVmmName_FullMethodName:      true,
		nodev1.NodeService_GetVmmVersion_FullMethodName:   true,
	}
}

// visitor is a program that has been let in.
type visitor struct {
	credentials.TLSInfo
	name string
}

type programCredentials struct {
	credentials.TransportCredentials
	programs *Programs
}

// ServerHandshake also ends the connection when the client's certificate does.
func (c *programCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p := c.programs
	defer p.waiting.enter(raw)()
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	who, err := p.admit(info)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	lasts := time.Until(who.State.VerifiedChains[0][0].NotAfter)
	return &admitted{Conn: conn, expiry: time.AfterFunc(lasts, func() { conn.Close() })}, who, nil
}

// admit returns which of the admitted callers this is.
func (p *Programs) admit(info credentials.AuthInfo) (visitor, error) {
	secured, is := info.(credentials.TLSInfo)
	if !is || len(secured.State.VerifiedChains) == 0 {
		return visitor{}, errors.New("a client without a verified certificate")
	}
	name := secured.State.VerifiedChains[0][0].Subject.CommonName
	if !slices.Contains(p.names, name) {
		return visitor{}, fmt.Errorf("a client called %q: want one of %s", name, strings.Join(p.names, ", "))
	}
	return visitor{secured, name}, nil
}

// Clone returns the credentials: they are shared.
func (c *programCredentials) Clone() credentials.TransportCredentials { return c }

// admitted is a connection that ends with its client's certificate.
type admitted struct {
	net.Conn
	expiry *time.Timer
}

// Close closes the connection.
func (a *admitted) Close() error {
	a.expiry.Stop()
	return a.Conn.Close()
}

// waiting are the connections whose handshakes are under way, the oldest first.
type waiting struct {
	mu  sync.Mutex
	all []net.Conn
}

// enter adds one, for which another may have to go; leave takes it out again.
func (w *waiting) enter(conn net.Conn) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all = append(w.all, conn); len(w.all) > maxHandshakes {
		over := endpoints.OneTooMany(w.all)
		w.all[over].Close()
		w.all = slices.Delete(w.all, over, over+1)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if at := slices.Index(w.all, conn); at >= 0 {
			w.all = slices.Delete(w.all, at, at+1)
		}
	}
}

// StandardPrograms are the names of those that may call agents.
func StandardPrograms() []string {
	return []string{contract.CommonNameController, contract.CommonNameAPI}
}
