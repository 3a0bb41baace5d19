package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/lifecycle"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/status"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
)

// TestNodeShutsDown: a VM with the eviction strategy Hibernate, whose pod has a claim for its memory, is to
// leave a node that shuts down; its save waits for no other, and no other VM is moved.
func TestNodeShutsDown(t *testing.T) {
	hibernate := scene.Strategy(kubevirtv1.EvictionHibernate)
	for name, c := range map[string]struct {
		s    scene.Scene
		want string
	}{
		"leaves":          {scene.Saving(true, scene.Runs(scene.Running), scene.ShutsDown).Change(hibernate, scene.StopBy("")), "node-a"},
		"node only ends":  {scene.Saving(true, scene.Runs(scene.Running), scene.Readiness(corev1.ConditionFalse)).Change(hibernate, scene.StopBy("")), ""},
		"other strategy":  {scene.Saving(true, scene.Runs(scene.Running), scene.ShutsDown).Change(scene.Strategy(kubevirtv1.EvictionNone), scene.StopBy("")), ""},
		"no claim":        {scene.On(kubevirtv1.PhaseRunning, scene.Runs(scene.Running), scene.ShutsDown).Change(hibernate), ""},
		"pod deleted":     {scene.Saving(true, scene.Runs(scene.Running), scene.ShutsDown, scene.Ending).Change(hibernate, scene.StopBy("")), ""},
		"had ended":       {scene.Saving(true, scene.Exited(0, ""), scene.ShutsDown).Change(hibernate, scene.StopBy("")), ""},
		"agent not heard": {scene.Saving(true, scene.RunsSince(time.Hour), scene.ShutsDown).Change(hibernate, scene.StopBy("")), ""},
	} {
		if got := status.Of(c.s.View).EvacuationNodeName; got != c.want {
			t.Errorf("%s: leaves node %q, want %q", name, got, c.want)
		}
	}
	for urgent, s := range map[bool]scene.Scene{
		true:  written(scene.Saving(true, scene.Runs(scene.Running), scene.ShutsDown).Change(hibernate)),
		false: written(scene.Saving(true, scene.Runs(scene.Running)).Change(hibernate)),
	} {
		next, _ := decide(s.View)
		if got, is := next.(action.Save); !is || got.Request.Urgent != urgent {
			t.Errorf("%v, urgent %v; want a save, urgent %v", next, got.Request.Urgent, urgent)
		}
	}
}

// TestAwaitsInVain: a shim that waits for a save when its pod is deleted has to end the guest instead.
func TestAwaitsInVain(t *testing.T) {
	waits := func(change ...func(*view.Pod)) scene.Scene {
		return written(scene.Saving(true, append(change, scene.Ending)...).Change(scene.StopBy(""), scene.Strategy(kubevirtv1.EvictionHibernate)))
	}
	under := waits(scene.Runs(scene.Running))
	under.Call = &saves.Call{State: saves.Running, Cancelled: true}
	for name, c := range map[string]struct {
		s    scene.Scene
		want string
	}{
		"runs":             {waits(scene.Runs(scene.Running)), "hurry"},
		"paused":           {waits(scene.Runs(scene.Paused)), "hurry"},
		"shuts down":       {waits(scene.Runs(scene.Stopping)), ""},
		"is being saved":   {waits(scene.Runs(scene.SavesV)), ""},
		"save under way":   {under, ""},
		"not heard":        {waits(scene.RunsSince(time.Hour)), ""},
		"asked just now":   {waits(scene.Runs(scene.Running), func(p *view.Pod) { p.Hurried = true }), ""},
		"its shim doesn't": {written(scene.Saving(true, scene.Runs(scene.Running), scene.Ending).Change(scene.StopBy(""))), ""},
	} {
		if got := nameOf(lifecycle.HurryGuest(c.s.View)); got != c.want {
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
