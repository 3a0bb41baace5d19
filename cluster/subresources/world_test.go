package subresources

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// patience bounds a test; nothing waits for as long unless it is broken.
const testPatience = time.Minute

// world is a cluster with one VM, web, which runs, and one node.
type world struct {
	client.Client
	*Server
	guests *nodestest.Guests
	url    string
	// stopAgent ends the node's agent.
	stopAgent func()
	// allowed are what the user may, as verb resource/subresource; nil: all.
	allowed map[string]bool
	// unknowing is why nobody can be known.
	unknowing error
}

func newWorld(t testing.TB, change func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance), more ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, kubevirtv1.AddToScheme(scheme))
	must(t, instancetypev1.AddToScheme(scheme))
	vm, vmi := running1()
	if change != nil {
		change(vm, vmi)
	}
	objects := append(more, vm)
	if vmi.Name != "" {
		objects = append(objects, vmi, pod())
	}
	w := &world{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(vm, vmi).Build(),
		guests: &nodestest.Guests{State: nodev1.State_STATE_RUNNING, Ports: map[uint32]bool{22: true}},
	}
	agent := serveAgent(t, w.guests)
	w.stopAgent = agent.stop
	var err error
	w.Server, err = New(Options{
		Client: w.Client, Agents: agent, KubeVirt: "v1.9.0", Log: slog.New(slog.DiscardHandler),
		PodName: func(vmi *kubevirtv1.VirtualMachineInstance) string { return "virt-launcher-" + vmi.Name },
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := r.Header.Get("X-Remote-User")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
		}),
		Authorizer: w, Unknowing: func() error { return w.unknowing },
	})
	must(t, err)
	s := httptest.NewServer(w.Handler())
	t.Cleanup(s.Close)
	w.url = s.URL
	return w
}

func running1() (*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance) {
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "vm"}}
	vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyAlways)
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
	vm.Status.Created = true
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "vmi", OwnerReferences: []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "web", UID: "vm", Controller: new(true)}},
	}}
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(30))
	vmi.Status.Phase, vmi.Status.NodeName = kubevirtv1.PhaseRunning, "one"
	vmi.Status.Interfaces = []kubevirtv1.InterfaceStatus{{Name: "default", IPAddress: "10.1.1.1"}}
	return vm, vmi
}

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "virt-launcher-web", UID: "pod", Labels: map[string]string{contract.LabelCreatedBy: "vmi"}},
		Spec:       corev1.PodSpec{NodeName: "one"},
	}
}

// agents is one agent, on node one.
type agents struct {
	connections *nodes.Connections
	address     string
	stop        func()
}

func (a *agents) Client(_ context.Context, node string, pod types.UID) (nodev1.NodeServiceClient, func(), error) {
	return a.connections.Client(node, nodes.Endpoint{Address: a.address}, pod)
}

func serveAgent(t testing.TB, guests *nodestest.Guests) *agents {
	t.Helper()
	authority, err := nodestest.NewAuthority()
	must(t, err)
	own, err := authority.Server("one")
	must(t, err)
	address, stop, err := guests.Serve("127.0.0.1:0", own)
	must(t, err)
	t.Cleanup(stop)
	config, err := authority.Client()
	must(t, err)
	return &agents{nodes.NewConnections(config), address, stop}
}

// Authorize is what the API server would be asked.
func (w *world) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	what := a.GetVerb() + " " + a.GetResource()
	if a.GetSubresource() != "" {
		what += "/" + a.GetSubresource()
	}
	if w.allowed == nil || w.allowed[what] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, what, nil
}

// do asks as a user. The path is below that of version v1 if it has none itself.
func (w *world) do(t *testing.T, method, path, body string) (code int, answer string) {
	t.Helper()
	answered := w.ask(t, method, path, body)
	defer answered.Body.Close()
	b, err := io.ReadAll(answered.Body)
	must(t, err)
	return answered.StatusCode, string(b)
}

// ask is do of which the answer's body is left to be read.
func (w *world) ask(t *testing.T, method, path, body string) *http.Response {
	t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/apis/subresources.kubevirt.io/v1/namespaces/default/" + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	must(t, err)
	r.Header.Set("X-Remote-User", "alice")
	answered, err := http.DefaultClient.Do(r)
	must(t, err)
	return answered
}

// dial opens a stream as virtctl does.
func (w *world) dial(t *testing.T, path string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{"plain.kubevirt.io"}, ReadBufferSize: 10240, WriteBufferSize: 10240}
	conn, answer, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(w.url, "http")+"/apis/subresources.kubevirt.io/v1/namespaces/default/"+path,
		http.Header{"X-Remote-User": {"alice"}})
	if err == nil {
		t.Cleanup(func() { conn.Close() })
		must(t, conn.SetReadDeadline(time.Now().Add(testPatience)))
	}
	return conn, answer, err
}

func (w *world) vm(t *testing.T) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, vm))
	return vm
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
