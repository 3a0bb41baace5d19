package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
)

func strategy(by kubevirtv1.EvictionStrategy) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.EvictionStrategy = &by }
}

func shutsDown(p *view.Pod) { p.Node.Ready, p.Node.ShuttingDown = corev1.ConditionFalse, true }

// TestNodeShutsDown: a VM with the eviction strategy Hibernate, whose pod has a claim for its memory, is to
// leave a node that shuts down; its save waits for no other, and no other VM is moved.
func TestNodeShutsDown(t *testing.T) {
	hibernate := strategy(kubevirtv1.EvictionHibernate)
	for name, c := range map[string]struct {
		s    scene
		want string
	}{
		"leaves":          {saving(true, runs(running), shutsDown).change(hibernate, stopBy("")), "node-a"},
		"node only ends":  {saving(true, runs(running), readiness(corev1.ConditionFalse)).change(hibernate, stopBy("")), ""},
		"other strategy":  {saving(true, runs(running), shutsDown).change(strategy(kubevirtv1.EvictionNone), stopBy("")), ""},
		"no claim":        {on(kubevirtv1.PhaseRunning, runs(running), shutsDown).change(hibernate), ""},
		"pod deleted":     {saving(true, runs(running), shutsDown, ending).change(hibernate, stopBy("")), ""},
		"had ended":       {saving(true, exited(0, ""), shutsDown).change(hibernate, stopBy("")), ""},
		"agent not heard": {saving(true, runsSince(time.Hour), shutsDown).change(hibernate, stopBy("")), ""},
	} {
		if got := statusOf(c.s.View).EvacuationNodeName; got != c.want {
			t.Errorf("%s: leaves node %q, want %q", name, got, c.want)
		}
	}
	for urgent, s := range map[bool]scene{
		true:  written(saving(true, runs(running), shutsDown).change(hibernate)),
		false: written(saving(true, runs(running)).change(hibernate)),
	} {
		next, _ := decide(s.View)
		if got, is := next.(action.Save); !is || got.Request.Urgent != urgent {
			t.Errorf("%v, urgent %v; want a save, urgent %v", next, got.Request.Urgent, urgent)
		}
	}
}

// TestAwaitsInVain: a shim that waits for a save when its pod is deleted has to end the guest instead.
func TestAwaitsInVain(t *testing.T) {
	waits := func(change ...func(*view.Pod)) scene {
		return written(saving(true, append(change, ending)...).change(stopBy(""), strategy(kubevirtv1.EvictionHibernate)))
	}
	under := waits(runs(running))
	under.Call = &saves.Call{State: saves.Running, Cancelled: true}
	for name, c := range map[string]struct {
		s    scene
		want string
	}{
		"runs":             {waits(runs(running)), "hurry"},
		"paused":           {waits(runs(paused)), "hurry"},
		"shuts down":       {waits(runs(stopping)), ""},
		"is being saved":   {waits(runs(savesV)), ""},
		"save under way":   {under, ""},
		"not heard":        {waits(runsSince(time.Hour)), ""},
		"asked just now":   {waits(runs(running), func(p *view.Pod) { p.Hurried = true }), ""},
		"its shim doesn't": {written(saving(true, runs(running), ending).change(stopBy(""))), ""},
	} {
		if got := nameOf(hurryGuest(c.s.View)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestNodeOf: a kubelet's own words on a shutdown count, and only while the node is not ready.
func TestNodeOf(t *testing.T) {
	says := func(status corev1.ConditionStatus, message string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: message}},
		}}
	}
	down := says(corev1.ConditionFalse, "[container runtime is down, node is shutting down]")
	for name, c := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"shuts down": {down, true},
		"broken":     {says(corev1.ConditionFalse, "container runtime is down"), false},
		"ready":      {says(corev1.ConditionTrue, "node is shutting down"), false},
		"not heard":  {says(corev1.ConditionUnknown, "node is shutting down"), false},
	} {
		if got := view.NodeOf(c.node).ShuttingDown; got != c.want {
			t.Errorf("%s: shutting down %v, want %v", name, got, c.want)
		}
	}
	broken := says(corev1.ConditionFalse, "container runtime is down")
	if !nodeChanges().Update(ctrlevent.UpdateEvent{ObjectOld: broken, ObjectNew: down}) {
		t.Error("that a node which was not ready shuts down is not looked at")
	}
}
