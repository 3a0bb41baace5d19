package nodeobject

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// writeTimeout is how long one write may take.
const writeTimeout = 30 * time.Second

// errOther: what answers is no API server, or not ours; a login page, say.
var errOther = errors.New("the API server answers with something else than what was written")

// Config configures a Publisher.
type Config struct {
	Client    *kube.Client
	Watch     *Watch
	Neighbour *Neighbour
	Source    Source
	Events    *kube.Events
	// Heartbeat writes KubeVirt's annotation along with other changes.
	Heartbeat bool
	Log       *slog.Logger
}

// Publisher keeps the Node as the facts are.
type Publisher struct {
	cfg   Config
	inner *reconciler
}

// New makes a publisher that does nothing before Run.
func New(cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, inner: newReconciler(cfg.Log)}
	p.inner.heartbeat, p.inner.write, p.inner.event = cfg.Heartbeat, p.write, p.event
	return p
}

// Outcomes say how it has gone so far. It may be called at any time.
func (p *Publisher) Outcomes() Outcomes { return p.inner.counters.get() }

// Run publishes until ctx ends, and leaves the Node as it is then: the Lease tells
// that the agent has gone, and an upgrade must not chase anybody away. Its Watch
// and Neighbour are to be run beside it.
func (p *Publisher) Run(ctx context.Context) {
	var lease sync.WaitGroup
	defer lease.Wait()
	lease.Go(func() { newLease(p.cfg.Client, p.cfg.Watch, p.inner.counters, p.cfg.Log).run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	stale := p.cfg.Source.Changed()
	for {
		node, nodeChanged := p.cfg.Watch.node()
		standing, standingChanged := p.cfg.Neighbour.Standing()
		p.inner.node, p.inner.standing = node, standing
		if p.inner.facts == nil || closed(stale) {
			stale = p.refresh(ctx, stale)
		}
		again := p.inner.step(ctx)
		var due <-chan time.Time
		if again > 0 {
			timer.Reset(again)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-nodeChanged:
		case <-standingChanged:
		case <-stale:
		case <-due:
		}
	}
}

// refresh asks for the facts, once the Node is known, and returns what is closed
// when they are old.
func (p *Publisher) refresh(ctx context.Context, stale <-chan struct{}) <-chan struct{} {
	if p.inner.node == nil {
		return stale
	}
	changed := p.cfg.Source.Changed()
	facts, err := p.cfg.Source.Facts(ctx, ownLabels(p.inner.node))
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrNoFacts) {
			p.cfg.Log.Warn("which labels the node has is not known: they stay as they are", "error", err)
		}
		return changed
	}
	p.inner.facts = &facts
	return changed
}

// ownLabels are those of a Node that are ours.
func ownLabels(node *object) map[string]string {
	own := map[string]string{}
	for f := range owners(node.ManagedFields).ours {
		if value, there := f.live(&node.ObjectMeta); there && f.kind == labelField {
			own[f.key] = value
		}
	}
	return own
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// write applies a plan to the very Node that was seen: if it is gone, or was created
// again under the same name, that is an error.
func (p *Publisher) write(ctx context.Context, node *object, what plan) (*object, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	body, err := patch(node, what)
	if err != nil {
		return nil, err
	}
	var after object
	err = p.cfg.Client.Metadata().Patch(types.ApplyYAMLPatchType).Resource("nodes").Name(node.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: kube.FieldManager}, metav1.ParameterCodec).
		MaxRetries(0).Body(body).Do(ctx).Into(&after)
	if err != nil {
		return nil, err
	}
	if after.UID != node.UID || after.ResourceVersion == "" {
		return nil, errOther
	}
	p.cfg.Watch.wrote(&after)
	return &after, nil
}

// patch is a plan as the API server takes it.
func patch(node *object, what plan) ([]byte, error) {
	fields := map[string]map[string]string{labelField: {}, annotationField: {}}
	for f, value := range what.fields {
		fields[f.kind][f.key] = value
	}
	meta := map[string]any{"name": node.Name, "uid": node.UID}
	for kind, values := range fields {
		if len(values) > 0 {
			meta[kind] = values
		}
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": meta})
}

// event writes an event about the Node.
func (p *Publisher) event(kind, reason, text string) {
	node := p.inner.node
	p.cfg.Events.Event(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, kind, reason, text)
}
