package instance

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// TestEventFault: what pods' events say is told once, whatever the order and however often.
func TestEventFault(t *testing.T) {
	const warning, normal = corev1.EventTypeWarning, corev1.EventTypeNormal
	for name, test := range map[string]struct {
		events       []corev1.Event
		reason, says string // empty: no fault
	}{
		"none":             {nil, "", ""},
		"no Secret":        {[]corev1.Event{scene.Said(20, normal, "Scheduled", "x"), scene.Said(5, warning, "FailedMount", scene.NoSecret)}, "FailedMount", "there is no Secret web-seed in namespace shop: create it, and the VM starts by itself"},
		"several":          {[]corev1.Event{scene.Said(5, warning, "FailedMount", scene.NoSecret), scene.Said(6, warning, "FailedMount", scene.NoConfigMap), scene.Said(4, warning, "FailedMount", scene.NoSecret)}, "FailedMount", "there is no ConfigMap conf.d, no Secret web-seed in namespace shop:"},
		"no token":         {[]corev1.Event{scene.Said(5, warning, "FailedMount", `failed to fetch token: serviceaccounts "robot" not found`)}, "FailedMount", "no ServiceAccount robot "},
		"named and vague":  {[]corev1.Event{scene.Said(1, warning, "FailedMount", "Unable to attach or mount volumes"), scene.Said(5, warning, "FailedMount", scene.NoSecret)}, "FailedMount", "no Secret web-seed "},
		"mended since":     {[]corev1.Event{scene.Said(20, warning, "FailedMount", scene.NoSecret), scene.Said(5, normal, "Pulling", "Pulling image")}, "", ""},
		"attach":           {[]corev1.Event{scene.Said(5, warning, "FailedAttachVolume", "Multi-Attach error for volume pvc-1")}, "FailedAttachVolume", "the VM's pod does not start: Multi-Attach error"},
		"sandbox":          {[]corev1.Event{scene.Said(5, warning, "FailedCreatePodSandBox", "sandbox 0123456789abcdef01: no IP")}, "FailedCreatePodSandBox", "sandbox …: no IP"},
		"of no matter":     {[]corev1.Event{scene.Said(5, warning, "DNSConfigForming", "too many")}, "", ""},
		"a series":         {[]corev1.Event{{Type: warning, Reason: "FailedMount", Message: "x", Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(scene.Time)}}, scene.Said(5, normal, "Scheduled", "")}, "FailedMount", "x"},
		"longer than told": {[]corev1.Event{scene.Said(5, warning, "Failed"+strings.Repeat("x", 1<<16), strings.Repeat("y", 1<<20))}, "Failed" + strings.Repeat("x", condition.MaxGuestText-len("Failed")), "yyy"},
	} {
		for range 2 {
			f := eventFault(test.events, scene.Namespace)
			if f == nil {
				f = new(condition.Fault)
			}
			if f.Reason != test.reason || !strings.Contains(f.Message, test.says) || len(f.Message) > 2*condition.MaxMessage {
				t.Errorf("%s: %s, %.200q; want %s, %q", name, f.Reason, f.Message, test.reason, test.says)
			}
			slices.Reverse(test.events)
		}
	}
}

// TestMissingAreBounded: of a thousand missing objects a few are named.
func TestMissingAreBounded(t *testing.T) {
	var events []corev1.Event
	for i := range 1000 {
		events = append(events, scene.Said(1, corev1.EventTypeWarning, "FailedMount", fmt.Sprintf(`secret "s%03d" not found`, i)))
	}
	if got := eventFault(events, scene.Namespace).Message; strings.Count(got, "Secret") != maxMissing {
		t.Errorf("%s", got)
	}
}

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
		"first":         {at(quietPatience), true, 10 * time.Second},
		"second":        {at(25 * time.Second), true, 25 * time.Second},
		"much later":    {at(time.Hour), true, time.Minute},
		"no node":       {scene.New().WithPod().RecordedAs(kubevirtv1.PhaseScheduling), false, 0},
		"said why":      {at(time.Hour, scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})), false, 0},
		"being deleted": {at(time.Hour, scene.Ending), false, 0},
	} {
		if got := suspicious(test.in.View); got != test.suspicious {
			t.Errorf("%s: its events are read: %v", name, got)
		}
		if got := nextLook(written(test.in).View); got != test.next {
			t.Errorf("%s: it is looked at after %v, want %v", name, got, test.next)
		}
	}
}

// TestImageFault: an image is named with the field that it is from.
func TestImageFault(t *testing.T) {
	waiting := func(reason, message string) func(*view.Pod) {
		return func(p *view.Pod) {
			scene.Bound(p)
			p.Spec.InitContainers = []corev1.Container{{Name: "volumeroot", Image: "debian"}, {Name: "kernel-boot", Image: "kernels"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	s := scene.Full().WithPod(waiting("ErrImagePull", "denied")).RecordedAs(kubevirtv1.PhaseScheduling)
	s.Instance.Status.Phase = kubevirtv1.PhaseScheduling
	s.Instance.Status.PhaseTransitionTimestamps = nil
	const want = "image debian can't be pulled: correct spec.volumes[0].containerDisk.image, or set spec.volumes[0].containerDisk.imagePullSecret if the registry asks for credentials; the node says: denied"
	check := func(reason, message string) {
		t.Helper()
		c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionSynchronized)
		if c == nil || c.Reason != reason || c.Message != message {
			t.Errorf("%+v, want %s, %s", c, reason, message)
		}
	}
	check("ErrImagePull", want)
	if c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionReady); c.Message != "the guest has not started yet: "+want {
		t.Errorf("Ready says %q", c.Message)
	}
	s = written(s).WithPod(waiting("ImagePullBackOff", `Back-off pulling image "debian"`))
	check("ImagePullBackOff", want)
	s = written(s).WithPod(waiting("ImagePullBackOff", `Back-off pulling image "debian": ErrImagePull: gone`))
	check("ImagePullBackOff", strings.Replace(want, "denied", `Back-off pulling image "debian": ErrImagePull: gone`, 1))
	s.Pod.Spec.InitContainers[0].Image, s.Instance.Spec.Volumes[0].ContainerDisk.Image = "alpine", "alpine"
	s.Pod.Status.InitContainerStatuses[0].State.Waiting.Message = "Back-off"
	check("ImagePullBackOff", strings.NewReplacer("debian", "alpine", "denied", "Back-off").Replace(want))
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
		r.Live = noEvents{r.Live}
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

// TestRefusal: a ServiceAccount that is missing has the pod refused.
func TestRefusal(t *testing.T) {
	for said, want := range map[string]string{
		`pods "p" is forbidden: error looking up service account shop/robot: serviceaccount "robot" not found`: "there is no ServiceAccount robot in namespace shop: create it, and the VM starts by itself, or correct the name in the VM",
		`pods "p" is forbidden: exceeded quota: q`:                                                             `the API server refused the VM's pod: pods "p" is forbidden: exceeded quota: q`,
	} {
		if got := refusal(errors.New(said), scene.Namespace); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}
