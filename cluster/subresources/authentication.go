package subresources

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// Where the API server says how it makes itself known to those to whom it passes requests on.
const (
	proxyNamespace = "kube-system"
	proxyConfigMap = "extension-apiserver-authentication"
	keyCA          = "requestheader-client-ca-file"
	keyUsername    = "requestheader-username-headers"
)

// lookEvery is how often it is looked whether the configuration has been read.
const lookEvery = 50 * time.Millisecond

// Who is allowed something is asked again after allowedFor, who is not after deniedFor.
const (
	allowedFor = 10 * time.Second
	deniedFor  = 2 * time.Second
)

// Proxy is what the API server's word is known by: a client certificate, and headers. It follows
// the cluster's configuration.
type Proxy struct {
	ca      *dynamiccertificates.ConfigMapCAController
	headers *headerrequest.RequestHeaderAuthRequestController
}

// NewProxy makes a Proxy that knows nothing before Run.
func NewProxy(api kubernetes.Interface) (*Proxy, error) {
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("aggregation", proxyNamespace, proxyConfigMap, keyCA, api)
	if err != nil {
		return nil, err
	}
	return &Proxy{ca: ca, headers: headerrequest.NewRequestHeaderAuthRequestController(proxyConfigMap, proxyNamespace, api,
		keyUsername, "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")}, nil
}

// Run follows the configuration until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	go p.headers.Run(ctx, 1)
	p.ca.Run(ctx, 1)
}

// Err says why nobody can be known.
func (p *Proxy) Err() error {
	lacks := func(key string) error {
		return fmt.Errorf("no %[1]s has been read from configmap %[2]s/%[3]s: the API server has to run with --%[1]s", key, proxyNamespace, proxyConfigMap)
	}
	if _, known := p.ca.VerifyOptions(); !known {
		return lacks(keyCA)
	}
	if len(p.headers.UsernameHeaders()) == 0 {
		return lacks(keyUsername)
	}
	return nil
}

// Await returns once somebody can be known, or ctx has ended.
func (p *Proxy) Await(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, lookEvery, true, func(context.Context) (bool, error) { return p.Err() == nil, nil })
}

// Authenticator knows users by the headers of requests that come with the API server's certificate.
func (p *Proxy) Authenticator() authenticator.Request {
	list := func(f func() []string) headerrequest.StringSliceProvider {
		return headerrequest.StringSliceProviderFunc(f)
	}
	return headerrequest.NewDynamicVerifyOptionsSecure(p.ca.VerifyOptions, list(p.headers.AllowedClientNames),
		list(p.headers.UsernameHeaders), list(p.headers.UIDHeaders), list(p.headers.GroupHeaders), list(p.headers.ExtraHeaderPrefixes))
}

// NewAuthorizer asks the API server who may do what.
func NewAuthorizer(api kubernetes.Interface) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: api.AuthorizationV1(), AllowCacheTTL: allowedFor, DenyCacheTTL: deniedFor,
		WebhookRetryBackoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 4},
	}.New()
}
