package instance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// answering are agents that answer so, by their nodes, whether a VM has ended.
type answering struct {
	Agents
	by map[string]error
	// asked gets the machines that were meant, unless it is nil.
	asked *[]string
}

func (a answering) ConfirmEnded(_ context.Context, node, machine string, _ types.UID) error {
	if a.asked != nil {
		*a.asked = append(*a.asked, machine)
	}
	return a.by[node]
}

// TestPromiseIsOfTheMachine: the promise is asked of the machine that the VM was started on, whatever its Node says meanwhile,
// until that is known to be another one, whose own promise is wanted then.
func TestPromiseIsOfTheMachine(t *testing.T) {
	noted := &kubevirtv1.NodeMachine{NodeUID: "uid-node", Identity: "c0ffee00"}
	for name, c := range map[string]struct {
		noted    *kubevirtv1.NodeMachine
		replaced bool
		want     string
	}{
		"noted": {noted, false, "c0ffee00"}, "not noted": {nil, false, ""}, "replaced": {noted, true, ""},
	} {
		s := scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(time.Minute), scene.Ending)
		s.Instance.Status.NodeMachine, s.Pod.Replaced = c.noted, c.replaced
		var asked []string
		caller := agentCaller{&round{Reconciler: &Reconciler{Agents: answering{asked: &asked}, Calls: atOnce{}}, o: s.View}}
		if got := caller.promising(s.Pod); got != c.want {
			t.Errorf("%s: a promise of %q is wanted, want %q", name, got, c.want)
		}
		if c.replaced {
			continue // the API server is asked, too
		}
		caller.askAll(t.Context(), []string{"node-a"}, caller.promising(s.Pod), s.Pod.UID)
		if !slices.Equal(asked, []string{c.want}) {
			t.Errorf("%s: the agent of %q is asked, want %q", name, asked, c.want)
		}
	}
}

// TestAnswers: only an answer without an error is a promise, and only a refusal says that the VM runs. A node that
// was not asked has said nothing.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		err              error
		promised, denied bool
		failures         int
		again            time.Duration
	}{
		"promises":         {nil, true, false, 0, 0},
		"denies":           {status.Error(codes.FailedPrecondition, "process 7"), false, true, 0, confirmAgain},
		"does not know":    {status.Error(codes.Unavailable, "not looked yet"), false, false, 1, 0},
		"is older":         {status.Error(codes.Unimplemented, "unknown method"), false, false, 1, 0},
		"can't be reached": {errors.New("no agent"), false, false, 1, 0},
	} {
		for _, stray := range []bool{false, true} {
			p := scene.New().WithPod(scene.RunsSince(time.Minute), scene.Ending, scene.Heard()).Pod
			asked := &p.Host
			if stray {
				asked = &view.Host{NodeName: "node-a"}
				p = scene.New().WithPod(scene.Gone).Pod
				p.Hosts = []*view.Host{asked}
			}
			caller := agentCaller{&round{Reconciler: &Reconciler{Agents: answering{by: map[string]error{"node-a": c.err}}, Calls: atOnce{}}, o: new(view.View)}}
			caller.confirm(t.Context(), p)
			if !p.Confirming || !asked.Asked || asked.Promised != c.promised || asked.Denied != c.denied {
				t.Errorf("an agent that %s, of a pod whose node is unknown: %v: asked %v, promised %v, denied %v", name, stray, asked.Asked, asked.Promised, asked.Denied)
			}
			if got := p.Ended(); got != c.promised {
				t.Errorf("an agent that %s: ended %v", name, got)
			}
			if n := len(caller.failures); n != c.failures {
				t.Errorf("an agent that %s: %d errors, want %d", name, n, c.failures)
			}
			if !stray && caller.again != c.again {
				t.Errorf("an agent that %s: it is asked again in %v, want %v", name, caller.again, c.again)
			}
		}
	}
	p := scene.New().WithPod(scene.Gone).Pod
	asks := hanging{make(map[calls.Key]func(context.Context) (Answers, error)), make(map[calls.Key]calls.Answer[Answers])}
	r := agentCaller{&round{Reconciler: &Reconciler{Agents: answering{}, Calls: asks}, o: new(view.View)}}
	p.Hosts = []*view.Host{{NodeName: "node-a"}}
	r.confirm(t.Context(), p)
	asks.end(t.Context())
	p.Hosts = []*view.Host{{NodeName: "node-a"}, {NodeName: "came-later"}}
	if r.confirm(t.Context(), p); !p.Hosts[0].Promised || p.Hosts[1].Asked || p.Ended() {
		t.Errorf("a node that was not asked: %+v, ended %v", p.Hosts[1], p.Ended())
	}
}
