package subresources

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
)

// patience is how long a request may take that is no stream. The API server waits for a minute.
const patience = 50 * time.Second

// filtered passes on what is allowed, outermost first: nothing that a request does ends the
// program; it is known what is asked for, by whom, and whether they may. Documents need no
// user: the API server asks for them in its own name. What is asked is written down by the API
// server's audit, which every request has gone through.
func (s *Server) filtered(documents http.Handler) http.Handler {
	resolver := requestInfo{}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status, which denials are
	codecs := serializer.NewCodecFactory(scheme)
	h := http.Handler(http.HandlerFunc(s.serve))
	h = filters.WithAuthorization(h, s.o.Authorizer, codecs)
	h = filters.WithAuthentication(h, s.o.Authenticator, http.HandlerFunc(s.unauthenticated), nil, nil)
	h = serverfilters.WithTimeoutForNonLongRunningRequests(h, isStream)
	h = withDeadline(h)
	h = split(h, documents)
	h = filters.WithRequestInfo(h, resolver)
	h = filters.WithCacheControl(h)
	return serverfilters.WithPanicRecovery(h, resolver)
}

func (s *Server) unauthenticated(w http.ResponseWriter, _ *http.Request) {
	if err := s.o.Unknowing(); err != nil {
		writeError(w, apierrors.NewUnauthorized("vmlet-api can't know the API server: "+err.Error()))
		return
	}
	writeError(w, apierrors.NewUnauthorized("requests have to come through the API server: use its address"))
}

// split tells requests about VMs from those for documents.
func split(actions, documents http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, has := request.RequestInfoFrom(r.Context()); has && info.IsResourceRequest && info.APIGroup == Group && info.Namespace != "" {
			actions.ServeHTTP(w, r)
			return
		}
		documents.ServeHTTP(w, r)
	})
}

// withDeadline bounds what is no stream.
func withDeadline(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, has := request.RequestInfoFrom(r.Context()); !has || !isStream(r, info) {
			ctx, cancel := context.WithTimeoutCause(r.Context(), patience, errors.New("it has taken too long"))
			defer cancel()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// isStream is for requests that last as long as their clients like.
func isStream(_ *http.Request, info *request.RequestInfo) bool {
	a := find(info)
	return a != nil && a.stream
}

// requestInfo says what a request is for: as the API server's, but that a subresource may have
// more than one part (vnc/screenshot), and that the port of a port-forward is not one of them.
type requestInfo struct{}

// NewRequestInfo reads the request's path.
func (requestInfo) NewRequestInfo(r *http.Request) (*request.RequestInfo, error) {
	known := request.RequestInfoFactory{APIPrefixes: sets.NewString("apis")}
	info, err := known.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest || len(info.Parts) < 3 {
		return info, err
	}
	info.Subresource = strings.Join(info.Parts[2:], "/")
	if info.Parts[2] == portForward {
		info.Subresource = portForward
	}
	return info, nil
}
