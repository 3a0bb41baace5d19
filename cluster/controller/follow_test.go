package controller

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
)

// told is what agents were told.
type told struct {
	agents map[string]nodes.Endpoint
	times  int // that they were told of agents
	pods   map[types.UID]string
}

func (a *told) SetAgents(all map[string]nodes.Endpoint) { a.agents, a.times = all, a.times+1 }
func (a *told) SetPod(node string, pod nodes.PodKey)    { a.pods[pod.UID] = node + " " + pod.Name }
func (a *told) RemovePod(node string, pod types.UID)    { delete(a.pods, pod) }

func newFollower() (*told, toolscache.ResourceEventHandler) {
	a := &told{pods: make(map[types.UID]string)}
	return a, (&follower{to: a, namespace: "vmlet", agents: make(map[types.UID]*corev1.Pod)}).handler()
}

// agentPod is an agent's that was made some seconds after noon.
func agentPod(uid, node, ip string, second int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vmlet", Name: "vmlet-agent-" + uid, UID: types.UID(uid), Labels: map[string]string{"app.kubernetes.io/name": contract.AccountAgent},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 7, 1, 12, 0, second, 0, time.UTC)),
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "metrics", ContainerPort: 8080}, {Name: contract.NodeAPIPort, ContainerPort: 8083},
		}}}},
		Status: corev1.PodStatus{PodIP: ip, Phase: corev1.PodRunning},
	}
}

func launcherPod(uid, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "virt-launcher-web", UID: types.UID(uid), Labels: map[string]string{contract.LabelApp: contract.LabelAppLauncher}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func TestAgentsAreFollowed(t *testing.T) {
	changed := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		gone []*corev1.Pod
		want map[string]string
	}{
		"one":                  {pods: []*corev1.Pod{agentPod("a", "n1", "10.0.0.1", 0)}, want: map[string]string{"n1": "10.0.0.1:8083"}},
		"IPv6":                 {pods: []*corev1.Pod{agentPod("a", "n1", "fd00::1", 0)}, want: map[string]string{"n1": "[fd00::1]:8083"}},
		"without an address":   {pods: []*corev1.Pod{agentPod("a", "n1", "", 0)}},
		"not bound to a node":  {pods: []*corev1.Pod{agentPod("a", "", "10.0.0.1", 0)}},
		"the younger one":      {pods: []*corev1.Pod{agentPod("a", "n1", "10.0.0.1", 5), agentPod("b", "n1", "10.0.0.2", 4)}, want: map[string]string{"n1": "10.0.0.1:8083"}},
		"of one second":        {pods: []*corev1.Pod{agentPod("b", "n1", "10.0.0.2", 5), agentPod("a", "n1", "10.0.0.1", 5)}, want: map[string]string{"n1": "10.0.0.2:8083"}},
		"one that was evicted": {pods: []*corev1.Pod{agentPod("a", "n1", "10.0.0.1", 0), changed(agentPod("b", "n1", "10.0.0.2", 5), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, want: map[string]string{"n1": "10.0.0.1:8083"}},
		"in another namespace": {pods: []*corev1.Pod{changed(agentPod("a", "n1", "10.0.0.1", 0), func(p *corev1.Pod) { p.Namespace = "team" })}},
		"another's":            {pods: []*corev1.Pod{changed(agentPod("a", "n1", "10.0.0.1", 0), func(p *corev1.Pod) { p.Labels = nil })}},
		"without the port":     {pods: []*corev1.Pod{changed(agentPod("a", "n1", "10.0.0.1", 0), func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })}},
		"gone":                 {pods: []*corev1.Pod{agentPod("a", "n1", "10.0.0.1", 0), agentPod("b", "n2", "10.0.0.2", 0)}, gone: []*corev1.Pod{agentPod("a", "n1", "10.0.0.1", 0)}, want: map[string]string{"n2": "10.0.0.2:8083"}},
	} {
		a, h := newFollower()
		for _, p := range c.pods {
			h.OnAdd(p, false)
		}
		for _, p := range c.gone {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: p})
		}
		got := make(map[string]string)
		for node, e := range a.agents {
			got[node] = e.Address
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: agents are at %v, want %v", name, got, c.want)
		}
	}
}

// TestOnlyMovesAreTold: streams are not made again because a pod's status was written.
func TestOnlyMovesAreTold(t *testing.T) {
	a, h := newFollower()
	p := agentPod("a", "n1", "10.0.0.1", 0)
	h.OnAdd(p, true)
	h.OnUpdate(p, p.DeepCopy())
	if a.times != 1 {
		t.Errorf("agents were set %d times, want once", a.times)
	}
}

func TestVMsPodsAreFollowed(t *testing.T) {
	a, h := newFollower()
	expect := func(what string, want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Values(a.pods)); !slices.Equal(got, want) {
			t.Errorf("%s: the pods are %q, want %q", what, got, want)
		}
	}
	waiting, bound := launcherPod("1", ""), launcherPod("1", "n1")
	h.OnAdd(waiting, false)
	expect("a pod that no node has")
	h.OnUpdate(waiting, bound)
	expect("a pod that was bound", "n1 virt-launcher-web")
	h.OnUpdate(bound, launcherPod("2", "n2"))
	expect("another pod of its name", "n2 virt-launcher-web")
	h.OnDelete(launcherPod("2", "n2"))
	expect("a pod that is gone")
	other := launcherPod("3", "n1")
	other.Labels = nil
	h.OnAdd(other, false)
	expect("somebody else's pod")
}
