// Package nodes keeps one stream to the agent of each node that has VMs' pods, and knows what
// the agents say of them. It must not know what follows from it: no Kubernetes client, no
// VirtualMachineInstance. Start reading at Agents.
//
// An agent's report counts only for pods of its own node: what an agent says is kept under the
// node whose name is in its certificate, and callers ask by the node that the pod is bound to.
package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
)

// confirmPatience is how long an agent may take to look for a pod's processes.
const confirmPatience = 10 * time.Second

// Endpoint is where the agent of a node serves the node API: "IP:port".
type Endpoint struct{ Address string }

// PodKey names a pod.
type PodKey struct {
	Namespace, Name string
	UID             types.UID
}

// Report is what an agent says of the VM of one pod.
type Report struct {
	// Current: the agent's stream is up and complete, so that VM is what it says now.
	Current bool
	// Silence is for how long the agent has not been heard though it might have been: since its
	// stream ended, its last answer, its coming to another place, or since this process listens.
	Silence time.Duration
	// VM is nil if the agent has no VM of that pod, which does not mean that none runs:
	// ConfirmEnded asks that. It is shared, and not to be changed.
	VM *nodev1.VirtualMachine
}

// Options are what agents are reached with.
type Options struct {
	// TLS has the client's certificate and whom it trusts. The name that an agent's
	// certificate must have is filled in for each.
	TLS *tls.Config
	Log *slog.Logger
	// Now is time.Now if it is nil.
	Now func() time.Time
}

// Agents are those of the cluster's nodes. Its methods may be called concurrently.
type Agents struct {
	tls     *tls.Config
	log     *slog.Logger
	now     func() time.Time
	changes *changes

	mu sync.Mutex
	// ctx is Start's while it runs; nil: no streams are wanted. began is when that was.
	ctx     context.Context
	began   time.Time
	nodes   map[string]*node
	streams sync.WaitGroup
}

// node is what is known of one: which pods are bound to it, where its agent is and what that
// says. Agents.mu guards it.
type node struct {
	name     string
	endpoint Endpoint // zero: no agent
	pods     map[types.UID]PodKey
	conn     *grpc.ClientConn // nil: not made yet
	// end ends the stream; nil: there is none.
	end context.CancelFunc
	// current: the stream is up and complete; reports is what has come by it.
	current bool
	reports *reports
	// since is when the agent was heard last, or had its latest reason to be: zero, none since
	// streams are wanted.
	since time.Time
}

// New makes Agents that know of none; Start connects to those that it learns of.
func New(o Options) *Agents {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Agents{tls: o.TLS, log: o.Log, now: o.Now, changes: newChanges(), nodes: make(map[string]*node)}
}

// Start keeps the streams until ctx ends, and returns when they have ended. It runs once. A
// controller-runtime manager takes it as a Runnable of the leader.
func (a *Agents) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.mu.Lock()
	if a.ctx != nil {
		a.mu.Unlock()
		return errors.New("the streams to agents have been started before")
	}
	a.ctx, a.began = ctx, a.now()
	for _, n := range a.nodes {
		a.connect(n)
	}
	a.mu.Unlock()
	a.changes.run(ctx)
	a.mu.Lock() // from now on connect sees that ctx has ended
	for _, n := range a.nodes {
		a.disconnect(n)
	}
	a.mu.Unlock()
	a.streams.Wait()
	return nil
}

// SetAgents says which nodes have an agent, and where. Those that are not named have none, but for those that
// report until now.
func (a *Agents) SetAgents(endpoints map[string]Endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.nodes {
		if _, has := endpoints[name]; !has {
			a.setEndpoint(n, Endpoint{})
		}
	}
	for name, e := range endpoints {
		a.setEndpoint(a.node(name), e)
	}
}

// setEndpoint follows an agent to another place; a.mu is held. An agent that reports goes on to be heard when
// its pod is gone: Kubernetes deletes a deleted Node's pods while the machine may run on, with its guests.
func (a *Agents) setEndpoint(n *node, e Endpoint) {
	switch {
	case n.endpoint == e:
	case e == (Endpoint{}) && n.current:
		n.endpoint = e
	default:
		a.disconnect(n)
		n.endpoint = e
		if e != (Endpoint{}) {
			n.since = a.now()
		}
		a.connect(n)
	}
	a.forget(n)
}

// SetPod says that a VM's pod is bound to a node: its agent is listened to for as long as any
// is. Saying it again changes nothing.
func (a *Agents) SetPod(nodeName string, pod PodKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.node(nodeName)
	if len(n.pods) == 0 {
		n.since = a.now() // nobody has listened
	}
	n.pods[pod.UID] = pod
	a.connect(n)
}

// RemovePod says that there is no such pod any more.
func (a *Agents) RemovePod(nodeName string, pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[nodeName]
	if n == nil {
		return
	}
	delete(n.pods, pod)
	if len(n.pods) == 0 {
		a.disconnect(n)
	}
	a.forget(n)
}

// Report is what the agent of the node that a pod is bound to says of it.
func (a *Agents) Report(nodeName string, pod types.UID) Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[nodeName]
	switch {
	case n != nil && n.current:
		return Report{Current: true, VM: n.reports.vm(pod)}
	case a.began.IsZero():
		return Report{}
	case n != nil && n.since.After(a.began):
		return Report{Silence: a.now().Sub(n.since)}
	}
	return Report{Silence: a.now().Sub(a.began)}
}

// Nodes are those that have an agent, by name.
func (a *Agents) Nodes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name, n := range a.nodes {
		if n.endpoint != (Endpoint{}) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Changed has a pod when something new is known of it, or its agent is lost or heard again.
// Pods that change again before they are taken come once.
func (a *Agents) Changed() <-chan PodKey { return a.changes.out }

// ConfirmEnded returns nil if the node's agent promises that no VM of the pod runs there, and
// that it will launch none any more. machine is the one that is meant (package machineid); empty: any of the node's name. Errors
// have gRPC codes: FAILED_PRECONDITION, one runs; others, it is not known.
func (a *Agents) ConfirmEnded(ctx context.Context, nodeName, machine string, pod types.UID) error {
	client, err := a.Client(nodeName, pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	answer, err := client.ConfirmPodEnded(ctx, &nodev1.ConfirmPodEndedRequest{PodUid: string(pod)})
	if err == nil || status.Code(err) == codes.FailedPrecondition {
		a.answered(nodeName)
	}
	if err != nil {
		return fmt.Errorf("agent of node %s: %w", nodeName, clipped{err})
	}
	// Two machines of one name may both be up. One that doesn't say which it is is an agent of before, or has no UUID.
	if on := answer.GetMachine(); machine != "" && on != "" && on != machine {
		return fmt.Errorf("agent of node %s: it runs on machine %.16q, and the VM was started on %s: its promise does not count", nodeName, on, machine)
	}
	return nil
}

// answered notes that an agent is there, which may not be listened to.
func (a *Agents) answered(nodeName string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[nodeName]; n != nil {
		n.since = a.now()
	}
}

// Client calls the agent of a node about the VM of a pod. It is for one use: the next time the agent may be
// somewhere else. Calls fail at once while the agent can't be reached.
func (a *Agents) Client(nodeName string, pod types.UID) (nodev1.NodeServiceClient, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[nodeName]
	if n == nil || n.endpoint == (Endpoint{}) {
		return nil, fmt.Errorf("node %s has no vmlet-agent that is ready: see kubectl get pods -n vmlet -o wide --field-selector spec.nodeName=%s", nodeName, nodeName)
	}
	if err := a.dial(n); err != nil {
		return nil, err
	}
	return clientFor(n.conn, pod), nil
}

// node returns what is known of a node, at first nothing; a.mu is held.
func (a *Agents) node(name string) *node {
	n := a.nodes[name]
	if n == nil {
		n = &node{name: name, pods: make(map[types.UID]PodKey)}
		a.nodes[name] = n
	}
	return n
}

// forget drops a node without any news; a.mu is held.
func (a *Agents) forget(n *node) {
	if len(n.pods) == 0 && n.endpoint == (Endpoint{}) {
		delete(a.nodes, n.name)
	}
}

// connect begins the stream, unless it is there or nobody wants it; a.mu is held.
func (a *Agents) connect(n *node) {
	if a.ctx == nil || a.ctx.Err() != nil || n.end != nil || len(n.pods) == 0 || n.endpoint == (Endpoint{}) {
		return
	}
	log := a.log.With("node", n.name, "address", n.endpoint.Address)
	if err := a.dial(n); err != nil {
		log.Error("failed to make a client of the agent", "error", err)
		return
	}
	ctx, end := context.WithCancel(a.ctx)
	n.end = end
	s := &stream{agents: a, node: n, client: nodev1.NewNodeServiceClient(n.conn), log: log}
	a.streams.Go(func() { s.run(ctx) })
}

// disconnect ends the stream and the connection; a.mu is held.
func (a *Agents) disconnect(n *node) {
	if n.end != nil {
		n.end()
		n.end = nil
	}
	if n.conn != nil {
		n.conn.Close()
		n.conn = nil
	}
	a.lose(n)
}

// lose notes that the agent is not heard any more; a.mu is held.
func (a *Agents) lose(n *node) {
	if !n.current {
		return
	}
	n.current, n.reports, n.since = false, nil, a.now()
	a.changes.add(n.pods)
}

// Streams returns the nodes that have VMs' pods, and of each whether its agent's stream is up and
// complete. It is nil while no streams are kept: another replica leads.
func (a *Agents) Streams() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil || a.ctx.Err() != nil {
		return nil
	}
	up := make(map[string]bool)
	for name, n := range a.nodes {
		if len(n.pods) > 0 {
			up[name] = n.current
		}
	}
	return up
}
