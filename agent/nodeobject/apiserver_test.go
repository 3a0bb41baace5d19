package nodeobject

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"
)

// apiServer has one Node, its agent's Lease and its events, on connections in
// memory, so that time may be a test's own. What the real one would refuse it
// refuses, what an agent has no reason to ask fails the test, and it can be told to
// answer in another way, or not at all.
type apiServer struct {
	t *testing.T

	mu      sync.Mutex
	node    *fakeNode // nil: deleted
	leases  leases
	told    []string  // reasons of events
	asked   []request // all that came, also what was answered wrongly or not at all
	token   string    // if set, the only one that is known
	history []change  // of the Node
	changed chan struct{}
	// refuse is how connecting fails, and fault what answers in its place.
	refuse func(context.Context) error
	fault  func(http.ResponseWriter, *http.Request) bool

	server *http.Server
	at     pipes
}

// request is one that came, or a connection that didn't come about.
type request struct {
	at   time.Time
	what string
}

// change is what a watch says of the Node.
type change struct {
	version int
	kind    string
	object  *object
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, node: newFakeNode(), leases: leases{t: t}, changed: make(chan struct{})}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// client is an agent's.
func (s *apiServer) client(tokenFile string) *kube.Client {
	c, err := kube.NewFor(&rest.Config{Host: "http://api", Dial: s.dial, BearerTokenFile: tokenFile}, "n1", "vmlet")
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// start begins to serve, without any memory of what has been watched.
func (s *apiServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.fault, s.history = nil, nil, nil
	s.server, s.at = &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}, pipes{make(chan net.Conn), make(chan struct{})}
	go func(server *http.Server, l net.Listener) { _ = server.Serve(l) }(s.server, s.at)
}

// stop breaks all connections off.
func (s *apiServer) stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	_ = server.Close()
}

// breaks has it answer wrongly from now on, beginning with a crash.
func (s *apiServer) breaks(refuse func(context.Context) error, fault func(http.ResponseWriter, *http.Request) bool) {
	s.stop()
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.fault = refuse, fault
}

// pipes is a listener for connections in memory.
type pipes struct {
	conns chan net.Conn
	over  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error { close(p.over); return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "api"} }

func (s *apiServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	refuse, at := s.refuse, s.at
	if refuse != nil {
		s.asked = append(s.asked, request{time.Now(), "connection"})
	}
	s.mu.Unlock()
	if refuse != nil {
		return nil, refuse(ctx)
	}
	ours, theirs := net.Pipe()
	select {
	case at.conns <- theirs:
		return ours, nil
	case <-at.over:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	if r.URL.Query().Get("watch") != "" {
		what = "WATCH " + r.URL.Path
	}
	s.mu.Lock()
	s.asked = append(s.asked, request{time.Now(), what})
	fault, known := s.fault, s.token == "" || r.Header.Get("Authorization") == "Bearer "+s.token
	s.mu.Unlock()
	if fault != nil { // without it the end of the connection would not be seen
		content, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(content))
	}
	switch {
	case fault != nil && fault(w, r):
	case !known:
		refuseWith(w, http.StatusUnauthorized, "Unauthorized", nil)
	case what == "PATCH /api/v1/nodes/n1":
		s.patch(w, r)
	case strings.HasPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/vmlet/leases"):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leases.ServeHTTP(w, r)
	case what == "POST /api/v1/namespaces/default/events":
		s.event(w, r)
	case strings.HasPrefix(what, "WATCH ") && s.selects(r):
		s.watch(w, r)
	case r.Method == http.MethodGet && s.selects(r):
		s.list(w, r)
	default:
		s.t.Errorf("the agent asks %s %s", r.Method, r.URL)
		refuseWith(w, http.StatusNotFound, "NotFound", nil)
	}
}

// selects: what is followed is this node's, and only as much of it as is needed.
func (s *apiServer) selects(r *http.Request) bool {
	q := r.URL.Query()
	own := r.URL.Path == "/api/v1/nodes" && q.Get("fieldSelector") == "metadata.name=n1" ||
		r.URL.Path == "/api/v1/pods" && q.Get("fieldSelector") == "status.phase=Running,spec.nodeName=n1" && q.Get("labelSelector") == virtHandlerLabel
	return own && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata;")
}

func refuseWith(w http.ResponseWriter, code int, reason string, causes []metav1.StatusCause) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, reason, causes))
}

func failure(code int, reason string, causes []metav1.StatusCause) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: metav1.StatusReason(reason), Message: reason, Details: &metav1.StatusDetails{Causes: causes},
	}
}

// patch is a server-side apply, without force, to the very Node that was meant.
func (s *apiServer) patch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := r.URL.Query(); r.Header.Get("Content-Type") != "application/apply-patch+yaml" || q.Get("fieldManager") != kube.FieldManager || q.Get("force") != "" {
		s.t.Errorf("a patch %s of %s", r.URL, r.Header.Get("Content-Type"))
	}
	var body struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, UID           string
			Labels, Annotations map[string]string
		}
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil || body.Kind != "Node" || body.APIVersion != "v1" || body.Metadata.Name != "n1" {
		s.t.Errorf("a patch of %+v: %v", body, err)
	}
	if s.node == nil || body.Metadata.UID != s.node.uid {
		refuseWith(w, http.StatusConflict, "Conflict", nil)
		return
	}
	p := plan{fields: map[field]string{}}
	for key, value := range body.Metadata.Labels {
		p.fields[label(key)] = value
	}
	for key, value := range body.Metadata.Annotations {
		p.fields[annotation(key)] = value
	}
	after, err := s.node.apply(r.Context(), nil, p)
	if err != nil {
		status := err.(interface{ Status() metav1.Status }).Status()
		refuseWith(w, int(status.Code), string(status.Reason), status.Details.Causes)
		return
	}
	s.note("MODIFIED", after)
	s.answer(w, after)
}

func (s *apiServer) answer(w io.Writer, o *object) {
	if header, is := w.(http.ResponseWriter); is {
		header.Header().Set("Content-Type", "application/json")
	}
	if err := json.NewEncoder(w).Encode(typed(o)); err != nil {
		s.t.Error(err)
	}
}

func typed(o *object) *object {
	o.Kind, o.APIVersion = "PartialObjectMetadata", "meta.k8s.io/v1"
	return o
}

// change is somebody's to the Node.
func (s *apiServer) change(do func(*fakeNode)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		do(s.node)
		s.note("MODIFIED", s.node.object())
	}
}

// remove deletes the Node, and its Lease with it, as the garbage collector does.
func (s *apiServer) remove() (version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node.version++
	s.note("DELETED", s.node.object())
	version = s.node.version
	s.node, s.leases.lease = nil, nil
	return version
}

// create makes a Node as the kubelet does, after one of the same name.
func (s *apiServer) create(uid string, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = newFakeNode()
	s.node.uid, s.node.version = uid, version+1
	s.note("ADDED", s.node.object())
}

func (s *apiServer) note(kind string, o *object) {
	version, _ := strconv.Atoi(o.ResourceVersion)
	s.history = append(s.history, change{version, kind, typed(o)})
	close(s.changed)
	s.changed = make(chan struct{})
}

// now are the objects that a request selects, and their version.
func (s *apiServer) now(r *http.Request) (all []*object, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version = 1
	if s.node != nil {
		version = s.node.version
		if r.URL.Path == "/api/v1/nodes" {
			all = append(all, typed(s.node.object()))
		}
	} else if n := len(s.history); n > 0 {
		version = s.history[n-1].version
	}
	return all, version
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	all, version := s.now(r)
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)},
	}
	for _, o := range all {
		list.Items = append(list.Items, *o)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// watch streams changes after a version, or all there is first.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	seconds, err := strconv.Atoi(q.Get("timeoutSeconds"))
	if err != nil || q.Get("allowWatchBookmarks") != "true" {
		s.t.Errorf("a watch without end or bookmarks: %s", r.URL)
	}
	over := time.After(time.Duration(seconds) * time.Second)
	send := sender(w)
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	if q.Get("sendInitialEvents") == "true" {
		all, version := s.now(r)
		for _, o := range all {
			send("ADDED", o)
		}
		send("BOOKMARK", endOfInitial(version))
		from = version
	} else if _, version := s.now(r); from < version && !s.remembers(from) {
		send("ERROR", failure(http.StatusGone, "Expired", nil))
		return
	}
	for {
		s.mu.Lock()
		history, changed := s.history, s.changed
		s.mu.Unlock()
		after := sort.Search(len(history), func(i int) bool { return history[i].version > from })
		for _, c := range history[after:] {
			if from = c.version; r.URL.Path == "/api/v1/nodes" {
				send(c.kind, c.object)
			}
		}
		select {
		case <-changed:
		case <-over:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// remembers: all changes after a version are known.
func (s *apiServer) remembers(version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.history) > 0 && s.history[0].version <= version+1
}

func endOfInitial(version int) *object {
	return typed(&object{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

// sender begins a watch's answer.
func sender(w http.ResponseWriter) func(kind string, o any) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	return func(kind string, o any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
		flush()
	}
}

func (s *apiServer) event(w http.ResponseWriter, r *http.Request) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		s.t.Error(err)
	}
	raw, err := io.ReadAll(r.Body)
	var event corev1.Event
	if err == nil {
		_, _, err = protobuf.NewSerializer(scheme, scheme).Decode(raw, nil, &event)
	}
	if err != nil || event.InvolvedObject.Name != "n1" || event.Reason == "" {
		s.t.Errorf("an event %+v: %v", event, err)
	}
	s.mu.Lock()
	s.told = append(s.told, event.Reason)
	s.mu.Unlock()
	event.Kind, event.APIVersion = "Event", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(event)
}

// since is how many requests came since a time, and most of them in a minute.
func (s *apiServer) since(begin time.Time) (all, busiest int, kinds string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	minutes, of := map[int]int{}, map[string]int{}
	for _, r := range s.asked {
		if !r.at.Before(begin) {
			all++
			minute := int(r.at.Sub(begin) / time.Minute)
			minutes[minute]++
			busiest = max(busiest, minutes[minute])
			of[r.what]++
		}
	}
	var text bytes.Buffer
	for what, n := range of {
		fmt.Fprintf(&text, "%d %s; ", n, what)
	}
	return all, busiest, text.String()
}
