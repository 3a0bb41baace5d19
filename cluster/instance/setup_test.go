package instance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
)

// TestWhoIsLookedAt: what a claim, a node, a pod and an agent's report lead to.
func TestWhoIsLookedAt(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	vmi := w.instance()
	scene.OnClaim(vmi)
	w.must(w.server.Update(t.Context(), vmi))
	r, p := w.controller(), w.pods()[0]
	one := func(what string, got []reconcile.Request) {
		t.Helper()
		if len(got) != 1 || got[0].NamespacedName != vmKey {
			t.Errorf("%s leads to %v", what, got)
		}
	}
	none := func(what string, got []reconcile.Request) {
		t.Helper()
		if len(got) != 0 {
			t.Errorf("%s leads to %v", what, got)
		}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: scene.Namespace, Name: name} }
	one("the pod", ofPod(t.Context(), &p))
	none("another pod", ofPod(t.Context(), &corev1.Pod{ObjectMeta: named("x")}))
	one("the claim", r.ofClaim(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: named("data")}))
	none("another claim", r.ofClaim(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: named("other")}))
	one("the node", r.ofNode(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName}}))
	none("another node", r.ofNode(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-z"}}))

	changed := make(chan nodes.PodKey, 2)
	changed <- nodes.PodKey{Namespace: scene.Namespace, Name: "gone"}
	changed <- nodes.PodKey{Namespace: scene.Namespace, Name: p.Name, UID: p.UID}
	close(changed)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	r.follow(t.Context(), changed, queue)
	if queue.Len() != 1 {
		t.Fatalf("%d are queued", queue.Len())
	}
	got, _ := queue.Get()
	one("the agent's report", []reconcile.Request{got})
}

// TestNodeChanges: of all that a kubelet writes to its node, little matters.
func TestNodeChanges(t *testing.T) {
	of := func(ready corev1.ConditionStatus, heartbeat int64, taints ...string) *corev1.Node {
		n := &corev1.Node{}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Unix(heartbeat, 0)}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key})
		}
		return n
	}
	machine := func(uuid string) *corev1.Node {
		n := of("True", 1)
		n.Status.NodeInfo.SystemUUID = uuid
		return n
	}
	for _, test := range []struct {
		name     string
		old, now *corev1.Node
		want     bool
	}{
		{"heartbeat", of("True", 1), of("True", 2), false},
		{"not ready", of("True", 1), of("Unknown", 1), true},
		{"ready", of("False", 1), of("True", 1), true},
		{"some taint", of("True", 1), of("True", 1, "team"), false},
		{"its former machine off", of("True", 1), of("True", 1, contract.TaintFormerMachineOff), true},
		{"another machine", machine("a"), machine("b"), true},
		{"out of service", of("Unknown", 1), of("Unknown", 1, corev1.TaintNodeOutOfService), true},
	} {
		if got := nodeChanges().Update(ctrlevent.UpdateEvent{ObjectOld: test.old, ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if !nodeChanges().Delete(ctrlevent.DeleteEvent{Object: of("True", 1)}) {
		t.Error("a node's deletion is not looked at")
	}
}
