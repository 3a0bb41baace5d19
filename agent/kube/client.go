// Package kube talks to the Kubernetes API server for the node's agent: client-go's
// REST client for each of the few API groups that it needs, list-watches with
// bounds, and the Kubernetes events that it writes. It knows nothing of labels,
// VMs or pods' content. Start reading at [Client].
//
// It leaves out client-go's typed clients and event recorders: linking them takes
// 13 and 3 MiB of memory on each node (docs/decisions.md has the figures).
package kube

import (
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// FieldManager is the agent's name as the owner of the fields that it writes.
const FieldManager = "vmlet"

// DefaultNamespace is the agent's where neither its pod nor a kubeconfig says so.
const DefaultNamespace = "vmlet"

// metadataOnly is the form of objects without what is in them.
const metadataOnly = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// How many requests a second the agent makes of each group at most, and how many
// at once: the watches and the writes of one node are far below.
const (
	requestsPerSecond = 20
	requestsAtOnce    = 40
)

// Config says how the API server is reached.
type Config struct {
	// Kubeconfig is the path of one; empty: as a pod does it, with the service
	// account's token, which is read again when it changes.
	Kubeconfig string
	// Node is this node's name in Kubernetes; empty: see NodeName.
	Node string
	// Namespace is the agent's own, where its Lease is; empty: its pod's, the
	// kubeconfig's, or DefaultNamespace.
	Namespace string
	// Version of this program, for the API server's logs.
	Version string
}

// Client is for one API server. Its methods may be called concurrently.
type Client struct {
	node      NodeName
	namespace string

	core, metadata, coordination, authentication, authorization, certificates rest.Interface
}

// New makes a client, which asks nothing of the API server yet.
func New(cfg Config) (*Client, error) {
	access, namespace, err := cfg.access()
	if err != nil {
		return nil, err
	}
	access.UserAgent = FieldManager + "/" + cfg.Version
	access.QPS, access.Burst = requestsPerSecond, requestsAtOnce
	access.WarningHandler = rest.NoWarnings{} // they would go to a log of their own
	c := &Client{namespace: namespace}
	if c.node, err = nodeName(cfg.Node, access, cfg.Kubeconfig == ""); err != nil {
		return nil, err
	}
	return c, c.connect(access)
}

// NewFor is New of an access that is known already, for a node.
func NewFor(access *rest.Config, node, namespace string) (*Client, error) {
	c := &Client{node: NodeName{Name: node, From: "given"}, namespace: namespace}
	return c, c.connect(rest.CopyConfig(access))
}

// access is how the API server is reached, and the namespace to work in.
func (c Config) access() (access *rest.Config, namespace string, err error) {
	if c.Kubeconfig != "" {
		access, namespace, err = fromKubeconfig(c.Kubeconfig)
	} else if access, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		err = errors.New("the agent is in no pod: name a kubeconfig in the configuration (kubernetes.kubeconfig)")
	} else if err != nil {
		err = fmt.Errorf("the pod's service account: %w: its token must be mounted (automountServiceAccountToken)", err)
	} else {
		namespace = podNamespace()
	}
	for _, n := range []string{DefaultNamespace, namespace, c.Namespace} {
		if n != "" {
			namespace = n
		}
	}
	return access, namespace, err
}

// fromKubeconfig reads a kubeconfig's current context. Files that it names are
// read again when they change.
func fromKubeconfig(path string) (*rest.Config, string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	access, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("the kubeconfig %s: %w", path, err)
	}
	namespace, _, err := loaded.Namespace()
	if namespace == metav1.NamespaceDefault {
		namespace = "" // which is also what a context has that names none
	}
	return access, namespace, err
}

// connect makes a REST client for each group, which share their connections.
func (c *Client) connect(access *rest.Config) error {
	codecs, err := newCodecs()
	if err != nil {
		return err
	}
	httpClient, err := rest.HTTPClientFor(withTokenFile(access))
	if err != nil {
		return fmt.Errorf("connecting to the API server at %s: %w", access.Host, err)
	}
	for _, g := range []struct {
		client  *rest.Interface
		version schema.GroupVersion
		path    string
		form    string // of the objects in an answer
	}{
		{&c.core, corev1.SchemeGroupVersion, "/api", ""},
		{&c.metadata, corev1.SchemeGroupVersion, "/api", metadataOnly},
		{&c.coordination, coordinationv1.SchemeGroupVersion, "/apis", ""},
		{&c.authentication, authenticationv1.SchemeGroupVersion, "/apis", ""},
		{&c.authorization, authorizationv1.SchemeGroupVersion, "/apis", ""},
		{&c.certificates, certificatesv1.SchemeGroupVersion, "/apis", ""},
	} {
		cfg := rest.CopyConfig(access)
		cfg.GroupVersion, cfg.APIPath = &g.version, g.path
		cfg.NegotiatedSerializer = codecs.WithoutConversion()
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + g.form + "," + runtime.ContentTypeJSON + g.form
		if *g.client, err = rest.RESTClientForConfigAndClient(cfg, httpClient); err != nil {
			return fmt.Errorf("connecting to the API server at %s: %w", access.Host, err)
		}
	}
	return nil
}

// withTokenFile has a token's file read again as soon as its token is refused, and not
// only each minute, as client-go does by itself.
func withTokenFile(access *rest.Config) *rest.Config {
	path := access.BearerTokenFile
	if path == "" {
		return access
	}
	access = rest.CopyConfig(access)
	access.BearerToken, access.BearerTokenFile = "", ""
	access.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(path)))
	return access
}

// newCodecs know the types of the groups above, and no others.
func newCodecs() (serializer.CodecFactory, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		certificatesv1.AddToScheme,
		metav1.AddMetaToScheme, // an object's metadata alone
	} {
		if err := add(scheme); err != nil {
			return serializer.CodecFactory{}, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	return serializer.NewCodecFactory(scheme), nil
}

// Node is this node's name in Kubernetes.
func (c *Client) Node() string { return c.node.Name }

// NodeFrom says where that name is from, for people.
func (c *Client) NodeFrom() string { return c.node.From }

// Namespace is the agent's own.
func (c *Client) Namespace() string { return c.namespace }

// Core is the API group of pods, nodes and events, v1.
func (c *Client) Core() rest.Interface { return c.core }

// Metadata is that group, too, and answers with [metav1.PartialObjectMetadata]: a
// Node's status is long and changes all the time.
func (c *Client) Metadata() rest.Interface { return c.metadata }

// Coordination is coordination.k8s.io/v1, of Leases.
func (c *Client) Coordination() rest.Interface { return c.coordination }

// Authentication is authentication.k8s.io/v1, of token reviews.
func (c *Client) Authentication() rest.Interface { return c.authentication }

// Authorization is authorization.k8s.io/v1, of access reviews.
func (c *Client) Authorization() rest.Interface { return c.authorization }

// Certificates is certificates.k8s.io/v1, of certificate signing requests.
func (c *Client) Certificates() rest.Interface { return c.certificates }
