package instance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// TestNextReading: events are read of pods that have a node and don't start, ever more rarely.
func TestNextReading(t *testing.T) {
	quiet := func(p *view.Pod) {
		scene.Bound(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(scene.Time)}}
	}
	at := func(after time.Duration, change ...func(*view.Pod)) scene.Scene {
		s := scene.New().WithPod(append([]func(*view.Pod){quiet}, change...)...).RecordedAs(kubevirtv1.PhaseScheduling)
		s.View.Now = scene.Time.Add(after)
		return s
	}
	for name, test := range map[string]struct {
		in         scene.Scene
		suspicious bool
		next       time.Duration // 0: never
	}{
		"just bound":    {at(time.Second), false, 9 * time.Second},
		"first":         {at(trouble.QuietPatience), true, 10 * time.Second},
		"second":        {at(25 * time.Second), true, 25 * time.Second},
		"much later":    {at(time.Hour), true, time.Minute},
		"no node":       {scene.New().WithPod().RecordedAs(kubevirtv1.PhaseScheduling), false, 0},
		"said why":      {at(time.Hour, scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})), false, 0},
		"being deleted": {at(time.Hour, scene.Ending), false, 0},
	} {
		if got := trouble.Suspicious(test.in.View); got != test.suspicious {
			t.Errorf("%s: its events are read: %v", name, got)
		}
		if got := nextLook(written(test.in).View); got != test.next {
			t.Errorf("%s: it is looked at after %v, want %v", name, got, test.next)
		}
	}
}

// TestMissingSecret: an instance says what its pod waits for, in a condition and one event,
// and costs nothing while it waits.
func TestMissingSecret(t *testing.T) {
	w := newWorld(t)
	w.nodes["node-a"].noKubelet = true // it mounts in vain
	w.until("it has a pod", func() bool { return len(w.pods()) == 1 && w.pods()[0].Spec.NodeName != "" })
	p := w.pods()[0]
	e := scene.Said(0, corev1.EventTypeWarning, "FailedMount", scene.NoSecret)
	e.Namespace, e.Name, e.InvolvedObject.UID, e.LastTimestamp = scene.Namespace, "e", p.UID, metav1.NewTime(w.now)
	other := *e.DeepCopy()
	other.Name, other.InvolvedObject.UID, other.Message = "other", "another pod's", scene.NoConfigMap
	w.must(w.server.Create(t.Context(), &e))
	w.must(w.server.Create(t.Context(), &other))
	synchronized := func() *kubevirtv1.Condition {
		return condition.Find(w.instance().Status.Conditions, kubevirtv1.ConditionSynchronized)
	}
	w.until("it says why", func() bool { return synchronized() != nil })
	if c := synchronized(); c.Reason != "FailedMount" || !strings.HasPrefix(c.Message, "there is no Secret web-seed in namespace shop: create it") {
		t.Errorf("%+v", c)
	}
	writes := len(w.writes)
	w.during(20)
	if more := w.writes[writes:]; len(more) > 0 {
		t.Errorf("while it waits: %v", more)
	}
	if n := len(slices.DeleteFunc(slices.Clone(w.events), func(e string) bool { return e != "Warning FailedMount" })); n != 1 {
		t.Errorf("events %v, want one of the failure", w.events)
	}
	w.nodes["node-a"].noKubelet = false // the Secret is there now
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	if c := synchronized(); c != nil {
		t.Errorf("it runs, and %+v", c)
	}
}

// TestEventsAway: a VM starts though events can't be read, and keeps what was known.
func TestEventsAway(t *testing.T) {
	w := newWorld(t)
	w.nodes["node-a"].noKubelet = true
	w.until("it has a pod", func() bool { return len(w.pods()) == 1 && w.pods()[0].Spec.NodeName != "" })
	away := func() *Reconciler {
		r := w.controller()
		r.Observer.Live = noEvents{r.Observer.Live}
		return r
	}
	for range 15 {
		w.turn()
		w.reconcile(away())
	}
	w.nodes["node-a"].noKubelet = false
	for range 5 {
		w.turn()
		w.reconcile(away())
	}
	if len(w.errors) > 0 || w.phase() != kubevirtv1.PhaseRunning {
		t.Errorf("phase %s, errors %v", w.phase(), w.errors)
	}
}

// noEvents is an API server whose events are away.
type noEvents struct{ client.Reader }

func (n noEvents) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if _, is := l.(*corev1.EventList); is {
		return errors.New("events are away")
	}
	return n.Reader.List(ctx, l, opts...)
}
