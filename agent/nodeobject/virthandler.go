package nodeobject

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vmlet/vmlet/contract"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// virtHandler is the name of KubeVirt's agent: of its DaemonSet, of the label
	// of its pods, and of the field manager by which it writes.
	virtHandler      = "virt-handler"
	virtHandlerLabel = "kubevirt.io=" + virtHandler
	// heartbeatFresh is how long KubeVirt believes a heartbeat
	// (pkg/virt-controller/watch/node).
	heartbeatFresh = 5 * time.Minute
	// neighbourPatience is how long the API server may take to tell which pods
	// there are. Then the node works as if there was no virt-handler.
	neighbourPatience = 10 * time.Second
)

// Standing says whether the agent leaves the node to a virt-handler.
type Standing struct {
	// Known: it has been looked, or looking took too long: devices can be offered.
	Known bool
	// Sure: it has been looked, or the API server answers and doesn't say which
	// pods there are: labels can be written.
	Sure bool
	// Aside: its labels and resources are left to it.
	Aside bool
	// Reason is how it was seen, for people; empty: there is none.
	Reason string
}

// NeighbourConfig configures a Neighbour.
type NeighbourConfig struct {
	Watch *Watch
	Log   *slog.Logger
	// Namespaces in which a pod is believed to be KubeVirt's. Its heartbeat
	// counts wherever it runs: to write one takes the right to write Nodes.
	Namespaces []string
	// TakeOver never stands aside.
	TakeOver bool
}

// Neighbour knows whether a virt-handler runs on this node.
type Neighbour struct {
	cfg      NeighbourConfig
	now      func() time.Time
	standing *Value[Standing]
	// seen: its pod was there; left is when the last one went, by the wall clock, which is
	// what heartbeats have.
	seen bool
	left time.Time
	// beat is the heartbeat that was seen last, and until is how long it is believed.
	beat, until time.Time
}

// NewNeighbour makes one that knows nothing before Run.
func NewNeighbour(cfg NeighbourConfig) *Neighbour {
	return &Neighbour{cfg: cfg, now: time.Now, standing: NewValue(Standing{})}
}

// Standing is how it is now, and a channel that is closed when that changes.
func (n *Neighbour) Standing() (Standing, <-chan struct{}) { return n.standing.Get() }

// Run looks until ctx ends.
func (n *Neighbour) Run(ctx context.Context) {
	late := time.NewTimer(neighbourPatience)
	defer late.Stop()
	var silent <-chan time.Time // begins when the API server has answered
	var p impatience
	expiry := time.NewTimer(0)
	defer expiry.Stop()
	for {
		pods, podsChanged := n.cfg.Watch.pods.Get()
		node, nodeChanged := n.cfg.Watch.node()
		if node != nil && silent == nil {
			silent = time.After(neighbourPatience)
		}
		standing, again := n.judge(pods, node, p)
		n.take(standing)
		var expires <-chan time.Time
		if again > 0 {
			expiry.Reset(again)
			expires = expiry.C
		}
		select {
		case <-ctx.Done():
			return
		case <-podsChanged:
		case <-nodeChanged:
		case <-expires:
		case <-late.C:
			p.all = true
		case <-silent:
			p.pods = true
		}
	}
}

// impatience is what was waited for long enough: all of it, or for the pods alone
// since the API server has answered.
type impatience struct{ all, pods bool }

// judge says how it stands, and when to look again without anything having
// changed.
func (n *Neighbour) judge(pods objects, node *object, p impatience) (Standing, time.Duration) {
	s := Standing{Sure: node != nil && (pods != nil || p.pods)}
	s.Known = s.Sure || p.all
	if pod := n.pod(pods); pod != "" {
		n.seen = true
		s.Reason = "its pod " + pod + " runs"
		s.Aside = !n.cfg.TakeOver
		return s, 0
	}
	if n.seen {
		n.seen, n.left = false, n.now().Round(0)
	}
	fresh := n.fresh(heartbeatOf(node))
	if fresh <= 0 {
		return s, 0
	}
	s.Reason = "it writes its heartbeat"
	s.Aside = !n.cfg.TakeOver
	return s, fresh
}

// fresh is how long a heartbeat is still believed. The first that is seen is as old as its
// time says. A later one is as new as it was seen: a clock that was put by years would
// make every heartbeat old, and have us take the labels from a running virt-handler. What a
// pod that has gone has left behind counts for nothing.
func (n *Neighbour) fresh(beat time.Time) time.Duration {
	now := n.now()
	if !beat.Equal(n.beat) {
		left := beat.Add(heartbeatFresh).Sub(now)
		if !n.beat.IsZero() {
			left = heartbeatFresh
		}
		putBack := now.Round(0).Before(n.left)
		if beat.IsZero() || left > 2*heartbeatFresh || !beat.After(n.left) && !putBack {
			left = 0
		}
		n.beat, n.until = beat, now.Add(left)
	} else if !beat.After(n.left) && !n.left.IsZero() {
		n.until = now
	}
	return n.until.Sub(now)
}

// pod is the first of a virt-handler's, as NAMESPACE/NAME; empty: none. The label
// alone is anybody's to give.
func (n *Neighbour) pod(pods objects) string {
	var names []string
	for _, p := range pods {
		owned := slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "DaemonSet" && o.Name == virtHandler
		})
		if owned && slices.Contains(n.cfg.Namespaces, p.Namespace) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// heartbeatOf is when a virt-handler last wrote its heartbeat; zero: never.
func heartbeatOf(node *object) time.Time {
	if node == nil {
		return time.Time{}
	}
	if !slices.Contains(owners(node.ManagedFields).others[annotation(contract.AnnotationHeartbeat)], virtHandler) {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, node.Annotations[contract.AnnotationHeartbeat])
	if err != nil {
		return time.Time{}
	}
	return at
}

// take notes how it stands.
func (n *Neighbour) take(s Standing) {
	n.standing.Update(func(before Standing) (Standing, bool) {
		switch {
		case before.Reason == "" && s.Reason != "" && s.Aside:
			n.cfg.Log.Warn("KubeVirt's virt-handler is on this node: its labels and resources are left to it", "because", s.Reason)
		case before.Reason == "" && s.Reason != "":
			n.cfg.Log.Warn("KubeVirt's virt-handler is on this node, and is taken over from (kubernetes.takeOver)", "because", s.Reason)
		case before.Reason != "" && s.Reason == "":
			n.cfg.Log.Info("KubeVirt's virt-handler has left this node")
		}
		return s, s != before
	})
}

// RunUnlessAside runs something while the agent doesn't stand aside, again and
// again, until ctx ends. Its context ends when it has to end.
func (n *Neighbour) RunUnlessAside(ctx context.Context, run func(context.Context)) {
	for ctx.Err() == nil {
		standing, changed := n.Standing()
		if !standing.Known || standing.Aside {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		running, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { run(running); close(ended) }()
		for standing.Known && !standing.Aside && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-changed:
				standing, changed = n.Standing()
			}
		}
		end()
		<-ended
	}
}
