package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/nodeobject"
	"github.com/vmlet/vmlet/contract"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm/described"

	"google.golang.org/protobuf/proto"
)

// kubeClient is the client of the API server; nil if the agent has to do with
// none, or can't make one: VMs are run all the same.
func kubeClient(c config.Config) *kube.Client {
	k := c.Kubernetes
	if k.Enabled == nil || !*k.Enabled {
		return nil
	}
	client, err := kube.New(kube.Config{Kubeconfig: k.Kubeconfig, Node: k.Node, Namespace: k.Namespace, Version: c.Version})
	if err != nil {
		c.Log.Error("the agent has nothing to do with Kubernetes", "error", err)
		return nil
	}
	c.Log.Info("Kubernetes", "node", client.Node(), "named by", client.NodeFrom(), "namespace", client.Namespace())
	return client
}

// publication is what the agent says of its node in Kubernetes.
type publication struct {
	source *factSource
	// The following are nil without an API server, publisher also where labels
	// are not applied.
	watch     *nodeobject.Watch
	neighbour *nodeobject.Neighbour
	publisher *nodeobject.Publisher
	events    *kube.Events
}

func newPublication(cfg config.Config, n *node.Node, client *kube.Client) *publication {
	k := cfg.Kubernetes
	p := &publication{source: newFactSource(n)}
	if client == nil {
		return p
	}
	hostname, _ := os.Hostname() // in a pod, the pod's name
	p.events = kube.NewEvents(client, hostname, cfg.Log)
	p.watch = nodeobject.NewWatch(client, cfg.Log)
	p.neighbour = nodeobject.NewNeighbour(nodeobject.NeighbourConfig{
		Watch: p.watch, Log: cfg.Log, Namespaces: k.VirtHandlerNamespaces, TakeOver: k.TakeOver,
	})
	if k.Labels == config.LabelsApply {
		p.publisher = nodeobject.New(nodeobject.Config{
			Client: client, Watch: p.watch, Neighbour: p.neighbour, Source: p.source, Events: p.events,
			Heartbeat: *k.Heartbeat, Log: cfg.Log,
		})
	}
	return p
}

// run publishes until ctx ends.
func (p *publication) run(ctx context.Context, cfg config.Config) {
	var all sync.WaitGroup
	defer all.Wait()
	if p.watch != nil {
		all.Go(func() { p.events.Run(ctx) })
		all.Go(func() { p.watch.Run(ctx) })
		all.Go(func() { p.neighbour.Run(ctx) })
	}
	nfd := cfg.Kubernetes.Labels == config.LabelsNFD
	if p.publisher == nil && !nfd {
		return
	}
	all.Go(func() { p.source.follow(ctx) })
	all.Go(func() {
		nodeobject.FollowCPUManager(ctx, nodeobject.CPUManagerFile(cfg.DevicePlugins.KubeletDir), p.source.takeCPUManager, cfg.Log)
	})
	if nfd {
		all.Go(func() {
			nodeobject.KeepFile(ctx, nodeobject.FileConfig{Path: cfg.Kubernetes.NFDFile, Source: p.source, Neighbour: p.neighbour, Log: cfg.Log})
		})
		return
	}
	all.Go(func() { p.publisher.Run(ctx) })
}

// factSource is what the Node's labels follow from.
type factSource struct {
	node  *node.Node
	state *nodeobject.Value[factState]
}

type factState struct {
	document   *capabilitiesv1.Capabilities // nil: none yet
	cpuManager *bool                        // nil: not known
	stack      string                       // a described.Report, encoded; empty: no stack's image is here
	brought    []described.VMM              // the VMMs that work by drivers in that image
}

func newFactSource(n *node.Node) *factSource {
	return &factSource{node: n, state: nodeobject.NewValue(factState{})}
}

// follow takes each new document until ctx ends.
func (s *factSource) follow(ctx context.Context) {
	changes, stop := s.node.Keeper.Subscribe()
	defer stop()
	// The first may have been made before.
	if doc, err := s.node.Keeper.Document(ctx); err == nil {
		s.take(doc)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case doc := <-changes:
			s.take(doc)
		}
	}
}

func (s *factSource) take(doc *capabilitiesv1.Capabilities) {
	s.state.Update(func(f factState) (factState, bool) {
		before := f.document
		f.document = doc
		return f, doc != before
	})
}

// takeCPUManager takes how the kubelet gives CPUs.
func (s *factSource) takeCPUManager(static bool) {
	s.state.Update(func(f factState) (factState, bool) {
		before := f.cpuManager
		f.cpuManager = &static
		return f, before == nil || *before != static
	})
}

// takeStack takes what the VMMs in a virtualisation stack's image say; nil: there is none any more.
func (s *factSource) takeStack(r *described.Report) {
	text := ""
	var brought []described.VMM
	if r != nil {
		text = r.Encode()
		for _, f := range r.VMMs {
			if f.Driver && f.Works() {
				brought = append(brought, f.VMM)
			}
		}
	}
	s.state.Update(func(f factState) (factState, bool) {
		before := f.stack
		f.stack, f.brought = text, brought
		return f, before != text
	})
}

// withStack adds to a document the VMMs that work by drivers in a stack's image, by their names and versions.
func withStack(doc *capabilitiesv1.Capabilities, brought []described.VMM) *capabilitiesv1.Capabilities {
	if len(brought) == 0 {
		return doc
	}
	doc = proto.CloneOf(doc)
	for _, v := range brought {
		if !slices.ContainsFunc(doc.GetVmms(), func(own *capabilitiesv1.VmmCapabilities) bool { return own.GetName() == v.ID }) {
			doc.Vmms = append(doc.Vmms, &capabilitiesv1.VmmCapabilities{Name: v.ID, Version: v.Version, State: capabilitiesv1.State_STATE_WORKS})
		}
	}
	return doc
}

// Changed is closed when a document comes or the kubelet gives CPUs otherwise.
func (s *factSource) Changed() <-chan struct{} {
	_, changed := s.state.Get()
	return changed
}

// Facts are those of the last document.
func (s *factSource) Facts(_ context.Context, previous map[string]string) (nodeobject.Facts, error) {
	state, _ := s.state.Get()
	if state.document == nil {
		return nodeobject.Facts{}, nodeobject.ErrNoFacts
	}
	labels, err := s.node.Labels.After(withStack(state.document, state.brought), previous)
	if err != nil {
		return nodeobject.Facts{}, err
	}
	facts := nodeobject.Facts{Labels: labels.GetLabels(), CPUManager: state.cpuManager}
	if state.stack != "" {
		facts.Annotations = map[string]string{contract.AnnotationStack: state.stack}
	}
	facts.Schedulable, facts.Reason = schedulable(state.document)
	return facts, nil
}

// schedulable reports whether VMs can be started: under the hypervisor and with
// the VMM that one gets which names none. nil: not known.
func schedulable(doc *capabilitiesv1.Capabilities) (can *bool, why string) {
	yes, no := true, false
	chosen, undecided := hypervisorOf(doc)
	switch {
	case chosen == nil && undecided || chosen != nil && chosen.GetState() == capabilitiesv1.State_STATE_UNSPECIFIED:
		return nil, ""
	case chosen == nil:
		return &no, "no hypervisor works: " + doc.GetDefaultHypervisorReason()
	case chosen.GetState() == capabilitiesv1.State_STATE_UNUSABLE:
		return &no, fmt.Sprintf("the hypervisor %s is unusable: %s", chosen.GetName(), chosen.GetReason())
	}
	i := slices.IndexFunc(doc.GetVmms(), func(v *capabilitiesv1.VmmCapabilities) bool { return v.GetName() == doc.GetDefaultVmm() })
	if i < 0 {
		return &no, "there is no VMM"
	}
	switch v := doc.GetVmms()[i]; v.GetState() {
	case capabilitiesv1.State_STATE_UNSPECIFIED:
		return nil, ""
	case capabilitiesv1.State_STATE_WORKS:
		return &yes, ""
	default:
		return &no, fmt.Sprintf("the VMM %s can't be used: %s", v.GetName(), v.GetReason())
	}
}

// hypervisorOf is the default one; undecided: there is none, and one could not be
// asked that might be.
func hypervisorOf(doc *capabilitiesv1.Capabilities) (chosen *capabilitiesv1.HypervisorCapabilities, undecided bool) {
	for _, h := range doc.GetHypervisors() {
		if h.GetName() == doc.GetDefaultHypervisor() {
			return h, false
		}
		undecided = undecided || h.GetState() == capabilitiesv1.State_STATE_UNSPECIFIED
	}
	return nil, undecided
}
