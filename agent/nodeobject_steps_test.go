package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/nodeobject"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
	corev1 "k8s.io/api/core/v1"
)

func (n *kubeNode) testLabels(t *testing.T) {
	n.untilLabel(t, contract.LabelSchedulable, "true")
	doc, err := n.source.node.Keeper.Document(n.ctx)
	check(t, err)
	derived, err := n.source.node.Labels.Of(doc)
	check(t, err)
	node := n.object(t)
	for key, value := range derived.GetLabels() {
		if node.Labels[key] != value {
			t.Errorf("%s is %q, want %q", key, node.Labels[key], value)
		}
	}
	if node.Labels[foreignLabel] != "1" || node.Labels[corev1.LabelHostname] != cluster.NodeName {
		t.Error("labels of others are gone")
	}
	if node.Labels[contract.LabelCPUManager] != "false" || node.Annotations[contract.AnnotationHeartbeat] == "" {
		t.Errorf("cpumanager %q, annotations %v", node.Labels[contract.LabelCPUManager], node.Annotations)
	}
	t.Logf("%d labels, %d writes", len(derived.GetLabels())+2, n.writes(t))
	if n.writes(t) > 2 { // what the kubelet's file says may come a moment later
		t.Errorf("%d writes for what is one", n.writes(t))
	}
}

// Others write to the Node, the document is made again, the agent is started again:
// nothing is written. testAPIServerAway starts the API server again.
func (n *kubeNode) testSilence(t *testing.T) {
	n.settle(t, 20)
	_, err := n.source.node.Keeper.Refresh(n.ctx)
	check(t, err)
	n.settle(t, 5)
	before := n.writes(t)
	next, stop := n.publish(t, n.cfg)
	defer stop()
	n.until(t, "the next agent has looked", func() bool { return next.publisher.Outcomes().NoChanges > 0 })
	if n.writes(t) != before {
		t.Error("the next agent writes what is there already")
	}
}

func (n *kubeNode) testLease(t *testing.T) {
	var lease struct {
		Metadata struct{ OwnerReferences []struct{ Kind, Name string } }
		Spec     struct {
			HolderIdentity, RenewTime string
			LeaseDurationSeconds      int
		}
	}
	n.until(t, "the lease", func() bool { return n.publisher.Outcomes().LeaseRenewals > 0 })
	n.ask(t, http.MethodGet, leases(deployed)+"/"+cluster.NodeName, "", &lease)
	if lease.Spec.HolderIdentity != cluster.NodeName || lease.Spec.RenewTime == "" || lease.Spec.LeaseDurationSeconds != 120 {
		t.Errorf("%+v", lease)
	}
}

// managed writes the kubelet's state of its CPU manager.
func (n *kubeNode) managed(t *testing.T, policy string) {
	t.Helper()
	path := nodeobject.CPUManagerFile(n.KubeletDir())
	check(t, os.WriteFile(path+".new", []byte(`{"policyName": "`+policy+`", "defaultCpuSet": "", "checksum": 0}`), 0o600))
	check(t, os.Rename(path+".new", path))
}

func (n *kubeNode) testChange(t *testing.T) {
	before := n.writes(t)
	for i, step := range []struct{ policy, label string }{{"static", "true"}, {"none", "false"}} {
		n.managed(t, step.policy)
		n.untilLabel(t, contract.LabelCPUManager, step.label)
		n.settle(t, 3)
		if got := n.writes(t) - before; got != i+1 {
			t.Errorf("%d writes for %d changes", got, i+1)
		}
	}
}

func (n *kubeNode) testPutBack(t *testing.T) {
	value := n.object(t).Labels[ownLabel]
	n.label(t, ownLabel, "")
	n.untilLabel(t, ownLabel, value)
	n.settle(t, 3)
}

func (n *kubeNode) testConflict(t *testing.T) {
	value := n.object(t).Labels[ownLabel]
	n.label(t, ownLabel, "theirs")
	n.until(t, "the conflict is known", func() bool { return len(n.publisher.Outcomes().Conflicting) == 1 })
	n.untilEvent(t, "VmletConflict")
	n.settle(t, 5)
	if got := n.object(t).Labels[ownLabel]; got != "theirs" {
		t.Errorf("another's label was written: %q", got)
	}
	n.label(t, ownLabel, "")
	n.untilLabel(t, ownLabel, value)
	n.until(t, "no conflict", func() bool { return len(n.publisher.Outcomes().Conflicting) == 0 })
}

func (n *kubeNode) testSkip(t *testing.T) {
	for _, annotation := range []string{contract.AnnotationSkipLabels, contract.AnnotationSkip} {
		value := n.object(t).Labels[ownLabel]
		n.kubectl(t, "annotate", "node", cluster.NodeName, annotation+"=true")
		n.until(t, annotation, func() bool { return n.publisher.Outcomes().Skipped })
		before := n.writes(t)
		n.label(t, ownLabel, "")
		n.kubectl(t, "annotate", "node", cluster.NodeName, "example.org/skip="+value) // takes long enough for a write
		n.kubectl(t, "annotate", "node", cluster.NodeName, annotation+"-", "example.org/skip-")
		n.untilLabel(t, ownLabel, value)
		if got := n.writes(t) - before; got != 1 {
			t.Errorf("%d writes, the one after opting in again is wanted", got)
		}
	}
	n.untilEvent(t, "VmletSkips")
}

// virtHandlers are pods that say that they are KubeVirt's, which they are in its namespace
// alone. They are for the node that has a kubelet: the other would not run any.
const virtHandlers = `
apiVersion: v1
kind: Namespace
metadata: {name: kubevirt}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: virt-handler, namespace: %s}
spec:
  selector: {matchLabels: {kubevirt.io: virt-handler}}
  template:
    metadata: {labels: {kubevirt.io: virt-handler}}
    spec:
      nodeSelector: {kubernetes.io/hostname: ` + cluster.NodeName + `}
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "vmlet.test/pause:1"}]
`

func (n *kubeNode) testVirtHandler(t *testing.T) {
	value := n.object(t).Labels[kubevirtLabel]
	check(t, n.Apply(n.ctx, fmt.Sprintf(virtHandlers, "default")))
	check(t, n.RolledOut(n.ctx, "default", "daemonset/virt-handler"))
	n.settle(t, 3)
	if n.publisher.Outcomes().Aside {
		t.Fatal("it stands aside for a pod of anybody's")
	}
	offering := n.cfg
	offering.DevicePlugins.Enabled = new(bool)
	*offering.DevicePlugins.Enabled = true
	ctx, cancel := context.WithCancel(n.ctx)
	ended := make(chan struct{})
	go func() { offerDevices(ctx, offering, offering.Log, n.neighbour, new(offers)); close(ended) }()
	defer func() { cancel(); <-ended }()
	n.untilOffered(t, true)
	check(t, n.Apply(n.ctx, fmt.Sprintf(virtHandlers, "kubevirt")))
	n.until(t, "standing aside", func() bool { return n.publisher.Outcomes().Aside })
	n.untilOffered(t, false)
	n.untilEvent(t, "VmletStandsAside")
	n.label(t, kubevirtLabel, "")
	n.settle(t, 3)
	if _, there := n.object(t).Labels[kubevirtLabel]; there {
		t.Error("a label of KubeVirt's was put back beside a virt-handler")
	}
	n.ask(t, http.MethodDelete, "/apis/apps/v1/namespaces/kubevirt/daemonsets/virt-handler?propagationPolicy=Background", "", nil)
	n.untilLabel(t, kubevirtLabel, value)
	n.untilOffered(t, true)
	n.untilEvent(t, "VmletTakesUp")
}

// untilOffered waits for the kubelet to have a device that every machine has, or
// not to have it.
func (n *kubeNode) untilOffered(t *testing.T, offered bool) {
	t.Helper()
	n.until(t, fmt.Sprint("devices are offered: ", offered), func() bool {
		tuns := n.object(t).Status.Allocatable["devices.kubevirt.io/tun"]
		return !tuns.IsZero() == offered
	})
}

// The API server ends and begins again: what had to be written meanwhile is written
// once, and nothing else.
func (n *kubeNode) testAPIServerAway(t *testing.T) {
	before := n.publisher.Outcomes().Applies
	check(t, n.StopComponent(cluster.APIServer))
	n.managed(t, "static")
	n.until(t, "a write has failed", func() bool { return n.publisher.Outcomes().LastError != "" })
	check(t, n.StartComponent(n.ctx, cluster.APIServer))
	n.untilLabel(t, contract.LabelCPUManager, "true")
	n.settle(t, 5)
	if got := n.publisher.Outcomes().Applies - before; got != 1 {
		t.Errorf("%d writes for one change", got)
	}
}

// The Node is deleted, and made anew by the kubelet: it has its labels again. The
// agent's token was bound to the one before and isn't accepted any more; it goes on as
// soon as its file has another.
func (n *kubeNode) testMadeAnew(t *testing.T) {
	file := tokenFile(n.cfg.Kubernetes.Kubeconfig)
	old, err := os.ReadFile(file)
	check(t, err)
	value := n.object(t).Labels[ownLabel]
	n.ask(t, http.MethodDelete, nodePath, "", nil)
	// What this test has written there the kubelet does not take.
	check(t, os.Remove(nodeobject.CPUManagerFile(n.KubeletDir())))
	check(t, n.RestartKubelet(n.ctx))
	n.label(t, foreignLabel, "1")
	n.until(t, "the token is refused", func() bool { // accepted ones are known for ten seconds
		return n.askAs(t, string(old), http.MethodGet, nodePath, "") != nil
	})
	n.managed(t, "static")
	n.until(t, "a write is refused", func() bool { return strings.Contains(n.publisher.Outcomes().LastError, "Unauthorized") })
	check(t, os.WriteFile(file, []byte(n.token(t, cluster.NodeName)), 0o600))
	n.untilLabel(t, contract.LabelCPUManager, "true")
	n.untilLabel(t, ownLabel, value)
	n.settle(t, 3)
}

func (n *kubeNode) testThrashing(t *testing.T) {
	value := n.object(t).Labels[ownLabel]
	for !n.publisher.Outcomes().Paused {
		n.label(t, ownLabel, "")
		n.until(t, "it is put back, or given up", func() bool {
			return n.publisher.Outcomes().Paused || n.object(t).Labels[ownLabel] == value
		})
	}
	n.untilEvent(t, "VmletPaused")
	n.until(t, "the pause is written", func() bool { return n.object(t).Annotations[contract.AnnotationPaused] != "" })
	before := n.writes(t)
	n.label(t, kubevirtLabel, "")
	n.managed(t, "none")
	n.kubectl(t, "annotate", "node", cluster.NodeName, "example.org/paused=x") // takes long enough for a write
	if got := n.writes(t) - before; got != 0 {
		t.Errorf("%d writes while paused", got)
	}
	if o := n.publisher.Outcomes(); o.Throttled < 3 || o.Pauses != 1 {
		t.Errorf("%+v", o)
	}
	n.kubectl(t, "annotate", "node", cluster.NodeName, contract.AnnotationPaused+"-")
	n.untilLabel(t, contract.LabelCPUManager, "false")
	node := n.object(t)
	if node.Labels[ownLabel] == "" || node.Labels[kubevirtLabel] == "" || node.Labels[foreignLabel] != "1" {
		t.Errorf("labels %v", node.Labels)
	}
	n.untilEvent(t, "VmletResumed")
}

func (n *kubeNode) testRights(t *testing.T) { n.tryRights(t, deployed) }

// testRenamedRights: an agent in another namespace, with another name, may do no more.
func (n *kubeNode) testRenamedRights(t *testing.T) {
	renamed := account{"elsewhere", "my-vmlet-agent"}
	check(t, n.Apply(n.ctx, n.rights(t, "testdata/renamed")))
	n.ask(t, http.MethodPost, leases(renamed), leaseManifest(renamed, cluster.NodeName), nil)
	token := n.tokenOf(t, renamed, cluster.NodeName)
	n.until(t, "the API server has read the policies", func() bool {
		err := n.askAs(t, token, http.MethodPatch, nodePath+"?dryRun=All", metadata("labels", "example.org/refused", "x"))
		return err != nil && strings.Contains(err.Error(), "not vmlet's labels")
	})
	n.tryRights(t, renamed)
}

// leases is the path of those in an agent's namespace.
func leases(of account) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + of.namespace + "/leases"
}

func leaseManifest(of account, name string) string {
	return `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "` + name + `", "namespace": "` + of.namespace + `"}}`
}

// tryRights tries what an agent may do and what not.
func (n *kubeNode) tryRights(t *testing.T, agent account) {
	own, unbound, others := n.tokenOf(t, agent, cluster.NodeName), n.tokenOf(t, agent, ""), n.tokenOf(t, agent, "other")
	label := func(key string) string { return metadata("labels", key, "x") }
	node, lease := nodePath, leases(agent)+"/"+cluster.NodeName
	for _, c := range []struct {
		name, token, object, patch, refusal string
	}{
		{"its own", own, node, label("node.vmlet.io/test"), ""},
		{"its own, away", own, node, metadata("labels", "node.vmlet.io/test", ""), ""},
		{"a foreign label", own, node, label("node-role.kubernetes.io/control-plane"), "not vmlet's labels: node-role.kubernetes.io/control-plane"},
		{"a foreign label, changed", own, node, label(foreignLabel), "not vmlet's labels: " + foreignLabel},
		{"a foreign label, away", own, node, metadata("labels", foreignLabel, ""), "not vmlet's labels: " + foreignLabel},
		{"virt-controller's", own, node, label("scheduling.node.kubevirt.io/tsc-frequency-1"), "not vmlet's labels"},
		{"a foreign annotation", own, node, metadata("annotations", "node.vmlet.io/skip", "x"), "not vmlet's annotations: node.vmlet.io/skip"},
		{"a taint", own, node, `{"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}`, "nothing of a node but labels"},
		{"cordon", own, node, `{"spec": {"unschedulable": true}}`, "nothing of a node but labels"},
		{"a finalizer", own, node, `{"metadata": {"finalizers": ["example.org/f"]}}`, "nothing of a node but labels"},
		{"another node", own, "/api/v1/nodes/other", label("node.vmlet.io/test"), "changes no other node's object"},
		{"another node's agent", others, node, label("node.vmlet.io/test"), "vmlet's agent of node other changes no other node's object"},
		{"a token of no node", unbound, node, label("node.vmlet.io/test"), "changes no other node's object"},
		{"its lease", own, lease, `{"spec": {"leaseTransitions": 1}}`, "cannot patch"}, // it updates
		{"delete", own, node, "delete", "cannot delete"},
	} {
		method, body := http.MethodPatch, c.patch
		if body == "delete" {
			method, body = http.MethodDelete, ""
		}
		wantRefusal(t, c.name, n.askAs(t, c.token, method, c.object, body), c.refusal)
	}
	events := func(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }
	event := func(namespace, about string) string {
		return `{"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "test-", "namespace": "` + namespace + `"}, "involvedObject": ` + about + `}`
	}
	for _, c := range []struct {
		name, path, object, refusal string
	}{
		{"another node's lease", leases(agent), leaseManifest(agent, "vmlet-node-2"), "no other node's Lease"},
		{"its node's event", events("default"), event("default", `{"kind": "Node", "name": "`+cluster.NodeName+`"}`), ""},
		{"another node's event", events("default"), event("default", `{"kind": "Node", "name": "other"}`), "about its own node alone"},
		{"a pod's event", events("default"), event("default", `{"kind": "Pod", "name": "`+cluster.NodeName+`"}`), "about its own node alone"},
		{"an event elsewhere", events(agent.namespace), event(agent.namespace, `{"kind": "Pod", "name": "x", "namespace": "`+agent.namespace+`"}`), "about its own node alone"},
	} {
		wantRefusal(t, c.name, n.askAs(t, own, http.MethodPost, c.path, c.object), c.refusal)
	}
}

// wantRefusal fails unless an error has a text in it; an empty one: there is no error.
func wantRefusal(t *testing.T, name string, err error, refusal string) {
	t.Helper()
	switch {
	case refusal == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)):
		t.Errorf("%s: %v, want %q in it", name, err, refusal)
	}
}

// An agent that has another node's token is refused, says so, and changes nothing.
func (n *kubeNode) testAnotherNode(t *testing.T) {
	n.stop()
	n.label(t, ownLabel, "")
	before := n.object(t).Labels
	cfg := n.cfg // and its state, with what has been probed
	cfg.Kubernetes.Kubeconfig = n.tokenKubeconfig(t, n.token(t, "other"))
	wrong, stop := n.publish(t, cfg)
	defer stop()
	n.until(t, "it is refused", func() bool {
		return strings.Contains(wrong.publisher.Outcomes().LastError, "agent of node other changes no other node's object")
	})
	n.untilEvent(t, "VmletRefused")
	if after := n.object(t).Labels; !maps.Equal(after, before) || wrong.publisher.Outcomes().LeaseErrors == 0 {
		t.Errorf("labels %v, want %v; %+v", after, before, wrong.publisher.Outcomes())
	}
}

// What docs/node-object.md says of taking vmlet away.
func (n *kubeNode) testUninstall(t *testing.T) {
	n.stop()
	empty := n.file(t, "node.json", `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+cluster.NodeName+`"}}`)
	n.kubectl(t, "apply", "--server-side", "--field-manager=vmlet", "-f", empty)
	node := n.object(t)
	for key := range node.Labels {
		if strings.Contains(key, "vmlet.io") || strings.Contains(key, "kubevirt.io") {
			t.Errorf("%s is left", key)
		}
	}
	if node.Labels[foreignLabel] != "1" || node.Annotations[contract.AnnotationHeartbeat] != "" {
		t.Errorf("labels %v, annotations %v", node.Labels, node.Annotations)
	}
}
