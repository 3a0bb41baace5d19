package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/agentpods"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/subresources"
	"github.com/vmlet/vmlet/internal/certificate"
)

const (
	// headerPatience and idlePatience bound who connects and says nothing.
	headerPatience = 10 * time.Second
	idlePatience   = 2 * time.Minute
	// proxyPatience is how long requests wait at first until it is known who passes them on. After
	// that they are answered with what is missing.
	proxyPatience = 10 * time.Second
	// leavePatience is for streams to end with a reason, and for requests to end at all: less
	// than a manager waits for its parts.
	leavePatience = 5 * time.Second
)

// aggregated serves the aggregated API.
type aggregated struct {
	api    *subresources.Server
	proxy  *subresources.Proxy
	port   int
	config *tls.Config
	log    *slog.Logger
}

func newAggregated(config *rest.Config, live client.Client, keeper *certificate.Keeper, o Options) (*aggregated, error) {
	all, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	proxy, err := subresources.NewProxy(all)
	if err != nil {
		return nil, err
	}
	authorizer, err := subresources.NewAuthorizer(all)
	if err != nil {
		return nil, err
	}
	api, err := subresources.New(subresources.Options{
		Client: live, PodName: launcher.PodName,
		Agents:        &agentpods.Caller{Live: live, Namespace: o.Namespace, Connections: nodes.NewConnections(keeper.ClientConfig())},
		Authenticator: proxy.Authenticator(), Authorizer: authorizer, Unknowing: proxy.Err, KubeVirt: o.KubeVirt, Log: o.Log,
	})
	return &aggregated{api: api, proxy: proxy, port: o.SubresourcesPort, log: o.Log, config: &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: keeper.GetCertificate,
		// Whose a certificate is is seen for each request: not all need one.
		ClientAuth: tls.RequestClientCert,
		NextProtos: []string{"http/1.1"}, // websockets come through the API server that way
	}}, err
}

// run serves until ctx ends. Streams are told why they end.
func (a *aggregated) run(ctx context.Context) error {
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(a.port)))
	if err != nil {
		return fmt.Errorf("--subresources-port: %w", err)
	}
	go a.proxy.Run(ctx)
	first, known := context.WithTimeout(ctx, proxyPatience)
	a.proxy.Await(first)
	known()
	server := &http.Server{
		Handler: a.api.Handler(), TLSConfig: a.config, ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2
		ErrorLog:     slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	a.api.Leave(last)
	if err := server.Shutdown(last); err != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Start makes it a manager's Runnable.
func (a *aggregated) Start(ctx context.Context) error { return a.run(ctx) }

// NeedLeaderElection returns false: each replica serves.
func (a *aggregated) NeedLeaderElection() bool { return false }
