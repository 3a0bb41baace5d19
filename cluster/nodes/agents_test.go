package nodes

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
)

// world is a cluster's agents and their client.
type world struct {
	*testing.T
	*Agents
	authority *nodestest.Authority
	endpoints map[string]Endpoint
	ended     chan struct{} // closed when Start has returned
	end       context.CancelFunc
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, time.Now)
}

// newWorldAt is a world whose streams have been started.
func newWorldAt(t *testing.T, now func() time.Time) *world {
	t.Helper()
	authority, err := nodestest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	config, err := authority.Client()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		T: t, authority: authority, endpoints: make(map[string]Endpoint), ended: make(chan struct{}),
		Agents: New(Options{TLS: config, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: now}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.end = cancel
	go func() {
		defer close(w.ended)
		_ = w.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	return w
}

// serve serves an agent for a node, with the certificate of another if certified names it.
func (w *world) serve(a *nodestest.Agent, node, certified string) (stop func()) {
	w.Helper()
	config, err := w.authority.Server(certified)
	if err != nil {
		w.Fatal(err)
	}
	address, stop, err := a.Serve("127.0.0.1:0", config)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(stop)
	w.endpoints[node] = Endpoint{address}
	w.SetAgents(w.endpoints)
	return stop
}

// until waits for a change after which a pod's report is as wanted.
func (w *world) until(node string, pod types.UID, wanted func(Report) bool) {
	w.Helper()
	for !wanted(w.Report(node, pod)) {
		select {
		case <-w.Changed():
		case <-w.Context().Done():
			w.Fatalf("pod %s: %v", pod, w.Report(node, pod))
		}
	}
}

func heardOf(state nodev1.State) func(Report) bool {
	return func(report Report) bool { return report.Current && report.VM.GetStatus().GetState() == state }
}

func heardNone(report Report) bool { return report.Current && report.VM == nil }
func unheard(report Report) bool   { return !report.Current && report.VM == nil }

var web = PodKey{Namespace: "default", Name: "web", UID: "uid-web"}

func vmOf(pod PodKey, state nodev1.State) *nodev1.VirtualMachine {
	return nodestest.VM(pod.Namespace, pod.Name, string(pod.UID), state)
}

// TestFollow: what an agent says is known once it has said all, and then follows it.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	agent := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	agent.SetComplete(false)
	w.serve(agent, "a", "a")
	w.SetPod("a", web)
	agent.Set(vmOf(web, nodev1.State_STATE_PAUSED))
	if report := w.Report("a", web.UID); !unheard(report) {
		t.Errorf("%v is reported before the agent has said all", report)
	}
	agent.SetComplete(true)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_PAUSED))
	agent.Set(vmOf(web, nodev1.State_STATE_STOPPED))
	w.until("a", web.UID, heardOf(nodev1.State_STATE_STOPPED))
	agent.Remove(string(web.UID))
	w.until("a", web.UID, heardNone)
}

// TestAgentOutlivesItsPod: an agent that reports is heard for as long as its stream lasts, also when its pod is
// gone, as a deleted Node's are; there is none to connect to afterwards.
func TestAgentOutlivesItsPod(t *testing.T) {
	w := newWorld(t)
	agent := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	stop := w.serve(agent, "a", "a")
	w.SetPod("a", web)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
	w.SetAgents(nil)
	if got := w.Nodes(); len(got) > 0 {
		t.Errorf("without any pod of an agent the nodes %v have one", got)
	}
	agent.Set(vmOf(web, nodev1.State_STATE_PAUSED))
	w.until("a", web.UID, heardOf(nodev1.State_STATE_PAUSED))
	stop()
	w.until("a", web.UID, unheard)
	w.mu.Lock()
	listens := w.nodes["a"].end != nil
	w.mu.Unlock()
	if listens {
		t.Error("it goes on to connect to an agent whose pod is gone")
	}
	agent = nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	w.serve(agent, "a", "a")
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
}

// TestLost: an agent that is gone says nothing, and one that comes back, at the same place or
// at another, is heard again.
func TestLost(t *testing.T) {
	w := newWorld(t)
	agent := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	stop := w.serve(agent, "a", "a")
	w.SetPod("a", web)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
	stop()
	w.until("a", web.UID, unheard)
	config, err := w.authority.Server("a")
	if err != nil {
		t.Fatal(err)
	}
	_, stop, err = agent.Serve(w.endpoints["a"].Address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
	elsewhere := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_SAVED))
	stop = w.serve(elsewhere, "a", "a")
	w.until("a", web.UID, heardOf(nodev1.State_STATE_SAVED))
	w.SetAgents(nil)
	stop()
	w.until("a", web.UID, unheard)
	if _, err := w.Client("a", "uid"); err == nil || !strings.Contains(err.Error(), "node a has no vmlet-agent") {
		t.Errorf("a client of no agent: %v", err)
	}
}

// TestOtherNodesPods: an agent's report about a pod counts on its own node only.
func TestOtherNodesPods(t *testing.T) {
	w := newWorld(t)
	other := PodKey{Namespace: "default", Name: "other", UID: "uid-other"}
	w.serve(nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING)), "a", "a")
	w.serve(nodestest.NewAgent(vmOf(web, nodev1.State_STATE_STOPPED), vmOf(other, nodev1.State_STATE_RUNNING)), "b", "b")
	w.SetPod("a", web)
	w.SetPod("b", other)
	w.until("b", other.UID, heardOf(nodev1.State_STATE_RUNNING))
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
}

// TestOtherNodesCertificate: an agent of another node is not listened to, nor asked.
func TestOtherNodesCertificate(t *testing.T) {
	w := newWorld(t)
	agent := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	agent.SetEnded(string(web.UID), nil)
	w.serve(agent, "a", "b")
	w.SetPod("a", web)
	err := w.ConfirmEnded(t.Context(), "a", "", web.UID)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "a.agent.vmlet.io") {
		t.Errorf("confirmed with another node's certificate: %v", err)
	}
	if n := agent.Streams(); n != 0 || w.Report("a", web.UID).Current {
		t.Errorf("%d streams", n)
	}
}

// TestUntrusted: an agent with another authority's certificate is not asked.
func TestUntrusted(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	agent := nodestest.NewAgent()
	agent.SetEnded(string(web.UID), nil)
	other.serve(agent, "a", "a")
	w.SetAgents(other.endpoints)
	if err := w.ConfirmEnded(t.Context(), "a", "", web.UID); status.Code(err) != codes.Unavailable {
		t.Errorf("confirmed by an agent that nobody knows: %v", err)
	}
}

// TestConfirmEnded: the agent's answer and its code come through, its words bounded.
func TestConfirmEnded(t *testing.T) {
	w := newWorld(t)
	agent := nodestest.NewAgent()
	w.serve(agent, "a", "a")
	for _, test := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK},
		{status.Error(codes.FailedPrecondition, "it runs"), codes.FailedPrecondition},
		{status.Error(codes.Unavailable, strings.Repeat("x", 8<<10)), codes.Unavailable},
	} {
		agent.SetEnded(string(web.UID), test.err)
		err := w.ConfirmEnded(t.Context(), "a", "", web.UID)
		if got := status.Code(err); got != test.want {
			t.Errorf("%v, want %v: %v", got, test.want, err)
		}
		if err != nil && len(err.Error()) > 2*maxWords {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

// TestPromiseOfAnotherMachine: of two machines of one name the agent of the one that is meant is believed, and one that does
// not say on which it is.
func TestPromiseOfAnotherMachine(t *testing.T) {
	for _, test := range []struct {
		on, wanted string
		counts     bool
	}{{"a1", "a1", true}, {"a1", "", true}, {"", "a1", true}, {"", "", true}, {"b2", "a1", false}} {
		w := newWorld(t)
		agent := nodestest.NewAgent()
		agent.Machine = test.on
		agent.SetEnded(string(web.UID), nil)
		w.serve(agent, "a", "a")
		err := w.ConfirmEnded(t.Context(), "a", test.wanted, web.UID)
		if (err == nil) != test.counts || status.Code(err) == codes.FailedPrecondition {
			t.Errorf("on %q, wanted of %q: %v, want that it counts: %v", test.on, test.wanted, err, test.counts)
		}
	}
}

// TestPodsDecideStreams: an agent is listened to for as long as a pod is bound to its node.
func TestPodsDecideStreams(t *testing.T) {
	w := newWorld(t)
	agent := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	w.serve(agent, "a", "a")
	if n := agent.Streams(); n != 0 {
		t.Errorf("%d streams without a pod", n)
	}
	second := PodKey{Namespace: "default", Name: "second", UID: "uid-second"}
	w.SetPod("a", web)
	w.SetPod("a", web)
	w.SetPod("a", second)
	w.until("a", second.UID, heardNone)
	w.RemovePod("a", second.UID)
	if report := w.Report("a", web.UID); !report.Current {
		t.Error("the stream ended with one of two pods")
	}
	w.RemovePod("a", web.UID)
	if report := w.Report("a", web.UID); report.Current {
		t.Error("heard without a pod")
	}
	w.SetPod("a", web)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
	if n := agent.Streams(); n != 2 {
		t.Errorf("%d streams, want one for each time that pods were there", n)
	}
	w.RemovePod("a", web.UID)
	w.SetAgents(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.nodes) != 0 {
		t.Errorf("%d nodes are kept of which nothing is known", len(w.nodes))
	}
}

// clock is a time that a test sets. Its methods may be called concurrently.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, 0).Add(time.Duration(c.ahead.Load())) }
func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// TestSilence: for how long an agent has not been heard, though it might have been.
func TestSilence(t *testing.T) {
	c := new(clock)
	w := newWorldAt(t, c.now)
	silent := func(after string, want time.Duration) {
		t.Helper()
		if got := w.Report("a", web.UID); got.Current || got.Silence != want {
			t.Errorf("%s: heard %v, silent for %v, want %v", after, got.Current, got.Silence, want)
		}
	}
	for w.Streams() == nil {
		time.Sleep(time.Millisecond) // until Start has begun
	}
	c.pass(time.Minute)
	silent("nobody listens, a minute after the start", time.Minute)
	w.SetPod("a", web)
	silent("listened to", 0)
	c.pass(time.Minute)
	w.SetPod("a", web)
	silent("listened to for a minute", time.Minute)
	agent := nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING))
	agent.SetComplete(false)
	stop := w.serve(agent, "a", "a")
	silent("it has come to a place", 0)
	agent.SetEnded(string(web.UID), status.Error(codes.FailedPrecondition, "it runs"))
	c.pass(time.Minute)
	if err := w.ConfirmEnded(t.Context(), "a", "", web.UID); status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	silent("it has answered", 0)
	agent.SetComplete(true)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
	c.pass(time.Hour)
	if report := w.Report("a", web.UID); report.Silence != 0 {
		t.Errorf("heard, and silent for %v", report.Silence)
	}
	stop()
	w.until("a", web.UID, unheard)
	silent("its stream has ended", 0)
	c.pass(time.Second)
	silent("a second later", time.Second)
	if got := w.Nodes(); len(got) != 1 || got[0] != "a" {
		t.Errorf("nodes with an agent: %v", got)
	}
	w.SetAgents(nil)
	if got := w.Nodes(); len(got) != 0 {
		t.Errorf("nodes with an agent, though there is none: %v", got)
	}
}

// TestHostileAgent: one that says more than is kept is not heard, and costs no other.
func TestHostileAgent(t *testing.T) {
	w := newWorld(t)
	var many []*nodev1.VirtualMachine
	for i := range maxVMs + 1 {
		many = append(many, nodestest.VM("default", "x", fmt.Sprintf("uid-%d", i), nodev1.State_STATE_RUNNING))
	}
	large := vmOf(web, nodev1.State_STATE_RUNNING)
	large.Status.Message = strings.Repeat("x", maxMessage)
	for node, agent := range map[string]*nodestest.Agent{"many": nodestest.NewAgent(many...), "large": nodestest.NewAgent(large)} {
		w.serve(agent, node, node)
		pod := PodKey{Namespace: "default", Name: node, UID: types.UID("uid-of-" + node)}
		w.SetPod(node, pod)
		for agent.Streams() < 2 { // the first was ended
			w.ask(node)
		}
		if w.Report(node, pod.UID).Current {
			t.Errorf("node %s is heard", node)
		}
	}
	w.serve(nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING)), "good", "good")
	w.SetPod("good", web)
	w.until("good", web.UID, heardOf(nodev1.State_STATE_RUNNING))
}

// ask goes to the agent and back.
func (w *world) ask(node string) {
	w.Helper()
	if err := w.ConfirmEnded(w.Context(), node, "", "nobody"); status.Code(err) != codes.Internal {
		w.Fatal(err)
	}
}

// TestSilentAgent: the end is not held up by an agent that accepts connections and is silent.
func TestSilentAgent(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.SetAgents(map[string]Endpoint{"a": {l.Addr().String()}})
	w.SetPod("a", web)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.end()
	<-w.ended
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the connection was not ended: %v", err)
	}
}

// TestClientCertificate: the server is given the controller's certificate, so that it can
// refuse all others.
func TestClientCertificate(t *testing.T) {
	w := newWorld(t)
	w.tls = w.tls.Clone()
	w.tls.Certificates = nil
	agent := nodestest.NewAgent()
	agent.SetEnded(string(web.UID), nil)
	w.serve(agent, "a", "a")
	if err := w.ConfirmEnded(t.Context(), "a", "", web.UID); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	if w.tls.ServerName != "" || w.tls.MinVersion != tls.VersionTLS13 {
		t.Error("the configuration that was passed in has changed")
	}
}
