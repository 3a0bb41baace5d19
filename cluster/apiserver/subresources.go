package apiserver

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/agentpods"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/subresources"
	"github.com/vmlet/vmlet/endpoints"
	"github.com/vmlet/vmlet/internal/certificate"
)

// proxyPatience is how long requests wait at first until it is known who passes them on. After that
// they are answered with what is missing.
const proxyPatience = 10 * time.Second

// newAggregated makes the server of the aggregated API.
func newAggregated(config *rest.Config, live client.Client, keeper *certificate.Keeper, o Options) (*server, error) {
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
		Authenticator: known(proxy.Authenticator()), Authorizer: authorizer, Unknowing: proxy.Err, KubeVirt: o.KubeVirt, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	s := newServer("--subresources-port", o.SubresourcesPort, api.Handler(), &tls.Config{
		GetCertificate: keeper.GetCertificate,
		// Whose a certificate is is seen for each request: not all need one.
		ClientAuth: tls.RequestClientCert,
	}, o.Log)
	s.begin = func(ctx context.Context) {
		go proxy.Run(ctx)
		first, cancel := context.WithTimeout(ctx, proxyPatience)
		defer cancel()
		proxy.Await(first)
	}
	s.leave = api.Leave // streams learn why they end
	return s, nil
}

// known keeps the connections of those who are authenticated: the API server's.
func known(by authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		who, is, err := by.AuthenticateRequest(r)
		if is && err == nil {
			endpoints.Known(r.Context())
		}
		return who, is, err
	})
}
