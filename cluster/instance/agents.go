package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/instance/view"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// askedAtOnce is how many agents are asked at once about one pod.
const askedAtOnce = 16

// killPatience is how long an agent may take to kill a VM.
const killPatience = 30 * time.Second

// hurryPatience is how long an agent may take to pass on that a VM is to end sooner. It answers
// when the VM has ended, which nobody waits for.
const hurryPatience = 2 * time.Second

// resizePatience is how long an agent may take to resize a guest: it looks for some seconds how far the
// guest has come.
const resizePatience = 15 * time.Second

// directPatience is how long an agent may take to pause a guest, or to resume it.
const directPatience = 15 * time.Second

// agentCaller calls the agents of pods' nodes.
type agentCaller struct{ *round }

// ask has an agent be called about a pod, and says how that has ended, if it has: a round that is
// called again when it has looks again.
func (t agentCaller) ask(p *view.Pod, what string, do func(context.Context, nodev1.NodeServiceClient) error) (ended bool, err error) {
	key := calls.Key{Object: t.key, Node: p.Spec.NodeName, Pod: p.UID, What: what}
	answer := t.Calls.Make(key, func(ctx context.Context) (Answers, error) {
		agent, err := t.Agents.Client(key.Node, key.Pod)
		if err != nil {
			return nil, err
		}
		return nil, do(ctx, agent)
	})
	t.lookAgain(answer.Again)
	return answer.Ended, answer.Err
}

// confirm asks the agent, or those of all nodes that may have had the pod. A promise is kept for this
// round alone: the agent gives it again.
func (t agentCaller) confirm(ctx context.Context, p *view.Pod) {
	p.Confirming = true
	hosts := map[string]*view.Host{p.Spec.NodeName: &p.Host}
	if p.Stray() {
		hosts = make(map[string]*view.Host, len(p.Hosts))
		for _, h := range p.Hosts {
			hosts[h.NodeName] = h
		}
	}
	names, uid, machine := slices.Collect(maps.Keys(hosts)), p.UID, t.promising(p)
	key := calls.Key{Object: t.key, Node: p.Spec.NodeName, Pod: uid, What: "confirm"}
	answer := t.Calls.Make(key, func(ctx context.Context) (Answers, error) { return t.askAll(ctx, names, machine, uid), nil })
	t.lookAgain(answer.Again)
	for node, err := range answer.Result {
		h := hosts[node]
		if h == nil {
			continue // it has got or lost its agent since the call was made
		}
		h.Asked, h.Promised, h.Denied = true, err == nil, status.Code(err) == codes.FailedPrecondition
		if err != nil && !h.Denied {
			t.failures = append(t.failures, fmt.Errorf("asking whether the VM of pod %s has ended: %w", p.Name, err))
		}
	}
	t.recheck(ctx, p)
	if p.Denied && (p.Gone || !view.Started(p.Report.VM)) {
		// A process of the container is left, and nobody tells of its end; else a VM runs, and
		// the agent tells of that.
		t.lookAgain(confirmAgain)
	}
}

// promising is the machine whose agent is asked for a promise about a pod's VM, as its identity; empty: any of the node's name,
// as that is not known, or another machine than the VM's is asked what it runs itself.
func (t agentCaller) promising(p *view.Pod) string {
	if machine := t.o.Machine(p); machine != nil && !p.Replaced {
		return machine.Identity
	}
	return ""
}

// recheck asks the API server whether the machine is still the one that the VM was started on whose agent has made a
// promise: the cache may be behind.
func (t agentCaller) recheck(ctx context.Context, p *view.Pod) {
	machine := t.o.Machine(p)
	if machine == nil || !p.Promised {
		return
	}
	n, err := t.Observer.Node(ctx, t.Observer.Live, p.Spec.NodeName)
	if err != nil {
		p.Promised = false
		t.failures = append(t.failures, err)
		return
	}
	p.Replaced = view.Replaces(n.Machine, machine)
}

// askAll asks the agents of nodes whether the VM of a pod has ended, some at a time.
func (t agentCaller) askAll(ctx context.Context, names []string, machine string, pod types.UID) Answers {
	var mu sync.Mutex
	answers := make(Answers, len(names))
	var all errgroup.Group
	all.SetLimit(askedAtOnce)
	for _, node := range names {
		all.Go(func() error {
			err := t.Agents.ConfirmEnded(ctx, node, machine, pod)
			mu.Lock()
			defer mu.Unlock()
			answers[node] = err
			return nil
		})
	}
	_ = all.Wait() // the errors are answers
	return answers
}

func (t agentCaller) kill(p *view.Pod) {
	t.end(p, "kill", killPatience, func(ctx context.Context, agent nodev1.NodeServiceClient, name string) error {
		_, err := agent.KillVM(ctx, &nodev1.KillVMRequest{Name: name})
		return err
	})
}

func (t agentCaller) hurry(p *view.Pod) {
	var grace *int64 // nil: the VM's own
	what := "stop"
	if s := t.o.Instance.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = new((time.Duration(*s) * time.Second).Milliseconds())
		what = fmt.Sprintf("stop within %d s", *s)
	}
	t.end(p, what, hurryPatience, func(ctx context.Context, agent nodev1.NodeServiceClient, name string) error {
		_, err := agent.StopVM(ctx, &nodev1.StopVMRequest{Name: name, GracePeriodMs: grace})
		if status.Code(err) == codes.DeadlineExceeded {
			return nil // it goes on without us
		}
		return err
	})
}

func (t agentCaller) pause(p *view.Pod) {
	t.direct(p, "pause", func(ctx context.Context, agent nodev1.NodeServiceClient, name string) error {
		_, err := agent.PauseVM(ctx, &nodev1.PauseVMRequest{Name: name})
		return err
	})
}

func (t agentCaller) resume(p *view.Pod) {
	t.direct(p, "resume", func(ctx context.Context, agent nodev1.NodeServiceClient, name string) error {
		_, err := agent.ResumeVM(ctx, &nodev1.ResumeVMRequest{Name: name})
		return err
	})
}

// direct has the agent do something to the guest of a VM that stands by, or did, for as long as it goes on.
func (t agentCaller) direct(p *view.Pod, what string, do func(context.Context, nodev1.NodeServiceClient, string) error) {
	p.Directed = true
	name := p.Namespace + "/" + p.Name
	_, err := t.ask(p, what, func(ctx context.Context, agent nodev1.NodeServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, directPatience)
		defer cancel()
		return do(ctx, agent, name)
	})
	if err != nil {
		t.failures = append(t.failures, fmt.Errorf("%s the VM of pod %s: %w", what, p.Name, err))
	}
}

// end has the agent end a pod's VM.
func (t agentCaller) end(p *view.Pod, what string, within time.Duration, do func(context.Context, nodev1.NodeServiceClient, string) error) {
	p.Hurried = true
	name := p.Namespace + "/" + p.Name
	_, err := t.ask(p, what, func(ctx context.Context, agent nodev1.NodeServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return do(ctx, agent, name)
	})
	if err != nil {
		t.failures = append(t.failures, fmt.Errorf("%s the VM of pod %s: %w", what, p.Name, err))
	}
}
