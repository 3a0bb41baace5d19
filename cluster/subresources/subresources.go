// Package subresources is the aggregated API subresources.kubevirt.io, which virtctl calls: VMs are
// started and stopped, guests' consoles and ports are reached. It must not know how a VM is run:
// what a VM is to do is written into its object, for vmlet-controller, and what its guest is to do
// is asked of the agent of its node. Start reading at New, and at actions for the list of them.
package subresources

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// Group is that of the API.
const Group = "subresources.kubevirt.io"

// versions are those of the API, the preferred one first. They have the same actions.
func versions() []string { return []string{"v1", "v1alpha3"} }

// Agents are those of the cluster's nodes.
type Agents interface {
	// Client calls the agent of a node about the VM of a pod. done is to be called when nothing is called any more.
	Client(ctx context.Context, node string, pod types.UID) (agent nodev1.NodeServiceClient, done func(), err error)
}

// Options are what the API is served with.
type Options struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	Agents Agents
	// PodName is the name of an instance's pod.
	PodName func(*kubevirtv1.VirtualMachineInstance) string
	// Authenticator returns the user, whom the API server names that passes requests on, and
	// Authorizer asks that whether they may.
	Authenticator authenticator.Request
	Authorizer    authorizer.UnconditionalAuthorizer
	// Unknowing says why the Authenticator can know nobody; nil if it can.
	Unknowing func() error
	// KubeVirt is the version of KubeVirt whose API this is, which virtctl compares with its own.
	KubeVirt string
	Log      *slog.Logger
}

// Server answers requests. Its Handler may be used concurrently.
type Server struct {
	o       Options
	streams *streams
	// expansions and pictures take memory: there are a few at once.
	expansions, pictures *gate
	handler              http.Handler
	// outside: an address may be that of a pod.
	outside func(netip.Addr) bool
}

// New makes a Server.
func New(o Options) (*Server, error) {
	s := &Server{o: o, streams: newStreams(), expansions: newGate(maxExpansions, maxUserExpansions), pictures: newGate(maxPictures, maxUserPictures), outside: outside}
	documents, err := s.documents()
	if err != nil {
		return nil, err
	}
	s.handler = s.filtered(documents)
	return s, nil
}

// Handler serves the API, over HTTP/1.1: websockets come through the API server that way.
func (s *Server) Handler() http.Handler { return s.handler }

// errReplaced ends streams when the program ends.
var errReplaced = errors.New("vmlet-api is being replaced: connect again")

// Leave ends all streams, each with the reason, and refuses new ones. It returns when they have
// ended, or ctx has.
func (s *Server) Leave(ctx context.Context) { s.streams.end(ctx, errReplaced) }
