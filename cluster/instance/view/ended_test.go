package view_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestEnded: what lets a VM start again, and what does not.
func TestEnded(t *testing.T) {
	for _, test := range []struct {
		name   string
		change []func(*view.Pod)
		want   bool
	}{
		{"not bound", nil, false},
		{"not bound, failed", []func(*view.Pod){scene.Failed}, false},
		{"not bound, deleted", []func(*view.Pod){scene.Ending}, true},
		{"bound", []func(*view.Pod){scene.Bound}, false},
		{"bound, deleted", []func(*view.Pod){scene.Bound, scene.Ending}, false},
		{"failed by others' word", []func(*view.Pod){scene.RunsSince(0), scene.Failed, scene.Ending}, false},
		{"container ended", []func(*view.Pod){scene.Exited(1, "")}, true},
		{"agent says so, no promise", []func(*view.Pod){scene.RunsSince(0), scene.Heard(scene.Halted), scene.Ending}, false},
		{"agent has no VM", []func(*view.Pod){scene.RunsSince(0), scene.Heard(), scene.Ending}, false},
		{"promised", []func(*view.Pod){scene.RunsSince(0), scene.Promised}, true},
		{"the kubelet has lost sight", []func(*view.Pod){scene.LostSight}, false},
		{"the kubelet has lost sight, promised", []func(*view.Pod){scene.LostSight, scene.Promised}, true},
		{"the kubelet has lost sight of what never ran", []func(*view.Pod){scene.LostSight, scene.Unidentified}, false},
		{"ended, and the agent has it run", []func(*view.Pod){scene.Exited(0, ""), scene.Heard(scene.Running)}, false},
		{"ended, and the agent has it start", []func(*view.Pod){scene.Exited(0, ""), scene.Heard(nodev1.State_STATE_STARTING)}, false},
		{"ended, and the agent has it ended", []func(*view.Pod){scene.Exited(0, ""), scene.Heard(scene.Halted)}, true},
		{"vanished, node unknown", []func(*view.Pod){scene.Gone}, false},
		{"vanished, no node may have it", []func(*view.Pod){scene.MayHaveBeenOn()}, true},
		{"vanished, one of two may have it", []func(*view.Pod){scene.MayHaveBeenOn(view.Host{Promised: true}, view.Host{Denied: true, Asked: true})}, false},
		{"vanished, none of two has it", []func(*view.Pod){scene.MayHaveBeenOn(view.Host{Promised: true}, view.Host{Promised: true})}, true},
		{"vanished, node gone, not asked", []func(*view.Pod){scene.Gone, scene.Bound, scene.NoNode}, false},
		{"vanished, node gone, nobody answers", []func(*view.Pod){scene.Gone, scene.Bound, scene.NoNode, scene.Asked}, true},
		{"vanished, node gone, its agent denies", []func(*view.Pod){scene.Gone, scene.Bound, scene.NoNode, scene.Asked, scene.Denied}, false},
		{"node gone, its agent may come yet", []func(*view.Pod){scene.RunsSince(0), scene.NoNode, scene.UnheardFor(view.HeardPatience - 1)}, false},
		{"node gone, its agent has no VM", []func(*view.Pod){scene.RunsSince(0), scene.NoNode, scene.Heard()}, false},
		{"node silent", []func(*view.Pod){scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown), scene.Renewed(time.Hour)}, false},
		{"node tainted, ready", []func(*view.Pod){scene.RunsSince(0), scene.OutOfService}, false},
		{"node tainted, not ready", []func(*view.Pod){scene.RunsSince(0), scene.OutOfService, scene.Readiness(corev1.ConditionUnknown), scene.UnheardFor(view.HeardPatience)}, true},
		{"node tainted, its agent may come yet", []func(*view.Pod){scene.RunsSince(0), scene.OutOfService, scene.Readiness(corev1.ConditionUnknown), scene.UnheardFor(view.HeardPatience - 1)}, false},
		{"node gone", []func(*view.Pod){scene.RunsSince(0), scene.NoNode}, true},
		{"node gone, its agent has the VM run", []func(*view.Pod){scene.RunsSince(0), scene.NoNode, scene.Heard(scene.Running)}, false},
		{"node tainted, its agent has the VM run", []func(*view.Pod){scene.RunsSince(0), scene.OutOfService, scene.Readiness(corev1.ConditionUnknown), scene.Heard(scene.Running)}, false},
		{"vanished, bound", []func(*view.Pod){scene.Gone, scene.Bound}, false},
		{"a sidecar ended", []func(*view.Pod){scene.Bound, func(p *view.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}}, false},
	} {
		if got := scene.New().WithPod(test.change...).Pod.Ended(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestWordsOfAgents: an agent's report that a VM may run, in whatever state of it, contradicts its end.
func TestWordsOfAgents(t *testing.T) {
	over := map[nodev1.State]bool{
		nodev1.State_STATE_STOPPED: true, nodev1.State_STATE_CRASHED: true, nodev1.State_STATE_SAVED: true, nodev1.State_STATE_CREATED: true,
	}
	for n := range nodev1.State_name {
		state := nodev1.State(n)
		p := scene.New().WithPod(scene.Exited(0, ""), scene.Heard(state)).Pod
		if got := p.Ended(); got != over[state] {
			t.Errorf("%v: ended %v, want %v", state, got, over[state])
		}
	}
	if p := scene.New().WithPod(scene.Exited(0, ""), scene.Heard(1000)).Pod; p.Ended() {
		t.Error("a state of a newer agent is taken for an end")
	}
	if p := scene.New().WithPod(scene.Exited(0, ""), func(p *view.Pod) { p.Report = nodes.Report{} }).Pod; !p.Ended() {
		t.Error("an end that the kubelet saw waits for an agent")
	}
}

// TestEndedOnAnotherMachine: what kubelet and agent of a machine say that has taken over a node's name ends no VM of the
// machine before it. The taint does, which says that this one is off, once the agent has had its time to contradict.
func TestEndedOnAnotherMachine(t *testing.T) {
	replaced := func(p *view.Pod) { p.Replaced = true }
	off := func(p *view.Pod) { p.Replaced, p.Node.FormerOff = true, true }
	for _, test := range []struct {
		name   string
		change []func(*view.Pod)
		want   bool
	}{
		{"the kubelet has the end", []func(*view.Pod){scene.Exited(0, ""), replaced}, false},
		{"the agent promises", []func(*view.Pod){scene.RunsSince(0), replaced, scene.Promised}, false},
		{"the agent is away", []func(*view.Pod){scene.RunsSince(0), replaced, scene.UnheardFor(view.HeardPatience)}, false},
		{"out of service", []func(*view.Pod){scene.RunsSince(0), replaced, scene.OutOfService, scene.Readiness(corev1.ConditionUnknown), scene.UnheardFor(view.HeardPatience)}, false},
		{"off, the agent promises", []func(*view.Pod){scene.RunsSince(0), off, scene.Promised}, true},
		{"off, the agent is away", []func(*view.Pod){scene.RunsSince(0), off, scene.UnheardFor(view.HeardPatience)}, true},
		{"off, the agent may come yet", []func(*view.Pod){scene.RunsSince(0), off, scene.UnheardFor(view.HeardPatience - 1)}, false},
		{"off, and it runs here", []func(*view.Pod){scene.RunsSince(0), off, scene.Heard(scene.Running)}, false},
		{"off, and a process runs here", []func(*view.Pod){scene.RunsSince(0), off, scene.Denied, scene.UnheardFor(view.HeardPatience)}, false},
	} {
		if got := scene.New().WithPod(test.change...).Pod.Ended(); got != test.want {
			t.Errorf("%s: ended %v, want %v", test.name, got, test.want)
		}
	}
}
