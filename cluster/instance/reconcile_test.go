package instance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// synchronized is the condition's reason and message; empty: there is none.
func (w *world) synchronized() (reason, message string) {
	if c := condition.Find(w.instance().Status.Conditions, kubevirtv1.ConditionSynchronized); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

// TestOtherPodsAreAskedFor: a cache that does not have an earlier instance's pod lets no
// second guest start.
func TestOtherPodsAreAskedFor(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	empty := w.snapshot()
	w.addInstance()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.guest().stays = true
	w.forgetInstance()
	w.addInstance()
	next := w.instance().DeepCopy()
	next.ResourceVersion = ""
	w.must(empty.Create(t.Context(), next)) // it has the instance, and no pods
	w.cached = empty
	before := len(w.writes)
	w.reconcile(w.controller())
	if slices.Contains(w.writes[before:], "create pod") {
		t.Fatalf("a pod was made while an earlier one's guest runs: %v", w.writes[before:])
	}
}

// TestWriteToAGoneInstance: one that is gone, which the cache does not know yet, is no error in the log.
func TestWriteToAGoneInstance(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	vmi := w.instance()
	vmi.Status.Phase = kubevirtv1.PhaseScheduled
	w.must(w.server.Status().Update(t.Context(), vmi))
	w.cached, w.writes = w.snapshot(), nil
	w.forgetInstance()
	w.reconcile(w.controller())
	if len(w.errors) > 0 || !slices.Contains(w.writes, "status instance") {
		t.Errorf("errors %v, writes %q, want none, and the status", w.errors, w.writes)
	}
}

// TestOwnerGoneMeanwhile: an instance that is deleted while its pod is made leaves no pod.
func TestOwnerGoneMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	w.before = func(_ int, what string) outcome {
		if what == "create pod" {
			w.forgetInstance()
		}
		return succeeds
	}
	w.reconcile(w.controller())
	if pods := w.pods(); len(pods) > 0 {
		t.Errorf("pod %s is left: %+v", pods[0].Name, pods[0].ObjectMeta)
	}
	if want := []string{"create pod", "delete pod", "patch pod"}; !slices.Equal(w.writes, want) {
		t.Errorf("writes %v, want %v", w.writes, want)
	}
}

// TestForeignPod: a pod of the name that is not the instance's is neither taken up nor removed.
func TestForeignPod(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	foreign, err := scene.MakePod(w.instance(), nil)
	w.must(err)
	foreign.OwnerReferences, foreign.Finalizers = nil, nil
	w.must(w.server.Create(t.Context(), foreign))
	result := w.reconcile(w.controller())
	if reason, message := w.synchronized(); reason != "FailedCreate" || !strings.Contains(message, foreign.Name+" is there and is not this instance's: delete it") {
		t.Errorf("Synchronized: %s, %q", reason, message)
	}
	if result.RequeueAfter == 0 {
		t.Error("it is not tried again")
	}
	if pods := w.pods(); len(pods) != 1 || pods[0].DeletionTimestamp != nil || len(w.instance().Status.ActivePods) > 0 {
		t.Errorf("pods %+v", pods)
	}
}

// TestRefused: what speaks against the pod is told once, and tried again.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance(func(v *kubevirtv1.VirtualMachineInstance) {
		v.Annotations = map[string]string{"refuse": "no such model"}
	})
	for range 3 {
		if r := w.reconcile(w.controller()); r.RequeueAfter != refusedAgain {
			t.Errorf("again after %v", r.RequeueAfter)
		}
	}
	if reason, message := w.synchronized(); reason != "FailedCreate" || message != "spec.domain.cpu: no such model" {
		t.Errorf("Synchronized: %s, %q", reason, message)
	}
	if want := []string{"status instance"}; !slices.Equal(w.writes, want) {
		t.Errorf("writes %v, want %v", w.writes, want)
	}
	if want := []string{"Warning FailedCreate"}; !slices.Equal(w.events, want) {
		t.Errorf("events %v, want %v", w.events, want)
	}
}

// TestPodRefusedByTheServer: an error of the API server's is told, and tried again sooner and
// sooner less.
func TestPodRefusedByTheServer(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	w.before = func(_ int, what string) outcome {
		if what == "create pod" {
			return fails
		}
		return succeeds
	}
	w.reconcile(w.controller())
	if reason, message := w.synchronized(); reason != "FailedCreate" || !strings.Contains(message, "etcd is away") {
		t.Errorf("Synchronized: %s, %q", reason, message)
	}
	if len(w.errors) != 1 {
		t.Errorf("errors %v: controller-runtime tries again after one", w.errors)
	}
	w.before = nil
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	if reason, _ := w.synchronized(); reason != "" {
		t.Errorf("Synchronized still has %s", reason)
	}
}

// TestClaims: an instance waits for its claims, and says so once.
func TestClaims(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance(scene.OnClaim)
	w.during(3)
	if reason, message := w.synchronized(); reason != "FailedPvcNotFound" || !strings.Contains(message, "no PersistentVolumeClaim data in namespace shop") {
		t.Errorf("Synchronized: %s, %q", reason, message)
	}
	w.must(w.server.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: scene.Namespace, Name: "data"}}))
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	if want := []string{"status instance", "create pod", "status instance", "status instance", "patch instance"}; !slices.Equal(w.writes, want) {
		t.Errorf("writes %v, want %v", w.writes, want)
	}
}

// TestFilling: a claim of a DataVolume is used when that is done, which the claim itself does not
// say before an importer has a pod.
func TestFilling(t *testing.T) {
	const populated = "true"
	for name, test := range map[string]struct {
		phase     string // of the DataVolume; none: there is none
		populator string
		starts    bool
	}{
		"new":                             {"", "", false},
		"imports":                         {"ImportInProgress", populated, false},
		"done":                            {"Succeeded", "", true},
		"waits to be populated":           {"PendingPopulation", populated, true},
		"waits for a consumer":            {"WaitForFirstConsumer", "", false},
		"waits for a consumer, populated": {"WaitForFirstConsumer", populated, true},
		"gone":                            {"none", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.restarts = false
			claim := scene.New().WithClaim("").Claims["data"]
			claim.Namespace = scene.Namespace
			claim.Annotations = map[string]string{claims.UsePopulator: test.populator}
			w.must(w.server.Create(t.Context(), claim))
			if test.phase != "none" {
				u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": test.phase}}}
				u.SetAPIVersion(claims.DataVolumeVersion)
				u.SetKind(claims.DataVolumeKind)
				u.SetNamespace(scene.Namespace)
				u.SetName("data")
				w.must(w.server.Create(t.Context(), u))
			}
			w.addInstance(scene.OnClaim)
			result := w.reconcile(w.controller())
			if started := len(w.pods()) == 1; started != test.starts {
				t.Errorf("it has a pod: %v", started)
			}
			if reason, _ := w.synchronized(); (reason == "DataVolumeNotReady") == test.starts || !test.starts && result.RequeueAfter != fillingAgain {
				t.Errorf("Synchronized: %s; again after %v", reason, result.RequeueAfter)
			}
		})
	}
}

// TestFillingWithoutCDI: a claim that vmlet fills is used when it is marked so, whoever names it.
func TestFillingWithoutCDI(t *testing.T) {
	for phase, starts := range map[string]bool{
		"": false, contract.ImportPending: false, contract.ImportWaiting: false, contract.ImportInProgress: false, contract.ImportFailed: false,
		contract.ImportClone: true, contract.ImportSucceeded: true,
	} {
		w := newWorld(t)
		w.restarts = false
		claim := scene.New().WithClaim("").Claims["data"]
		claim.Namespace, claim.OwnerReferences = scene.Namespace, nil
		claim.Annotations = map[string]string{contract.AnnotationImport: "blank", contract.AnnotationImportPhase: phase}
		w.must(w.server.Create(t.Context(), claim))
		w.addInstance(scene.OnClaim)
		w.reconcile(w.controller())
		if started := len(w.pods()) == 1; started != starts {
			t.Errorf("%q: it has a pod: %v, want %v", phase, started, starts)
		}
		if reason, _ := w.synchronized(); (reason == "DataVolumeNotReady") == starts {
			t.Errorf("%q: Synchronized says %s", phase, reason)
		}
	}
}

// TestLabels: the pod follows the instance's labels, and keeps those of others.
func TestLabels(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	p := w.pods()[0]
	p.Labels["istio"] = "on"
	w.must(w.server.Update(t.Context(), &p))
	vmi := w.instance()
	delete(vmi.Labels, "app")
	vmi.Labels["tier"], vmi.Labels[contract.LabelApp], vmi.Labels[contract.LabelAttachedTo] = "front", "mine", "another's"
	w.must(w.server.Update(t.Context(), vmi))
	before := len(w.writes)
	w.during(3)
	got := w.pods()[0].Labels
	for key, want := range map[string]string{"app": "", "tier": "front", "istio": "on", contract.LabelAttachedTo: "", contract.LabelApp: contract.LabelAppLauncher, contract.LabelCreatedBy: string(vmi.UID)} {
		if got[key] != want {
			t.Errorf("label %s is %q, want %q", key, got[key], want)
		}
	}
	if want := []string{"patch pod"}; !slices.Equal(w.writes[before:], want) {
		t.Errorf("writes %v, want %v", w.writes[before:], want)
	}
}

// TestKilledAtOnce: a grace period that is set to 0 later reaches a guest that does not heed
// its power button.
func TestKilledAtOnce(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.guest().stays = true
	w.deleteInstance()
	w.during(5)
	if w.phase() != kubevirtv1.PhaseRunning {
		t.Fatalf("phase %s", w.phase())
	}
	vmi := w.instance()
	scene.Grace(0)(vmi)
	w.must(w.server.Update(t.Context(), vmi))
	w.until("it is gone", w.in("gone"))
	if !slices.Contains(w.events, "Normal Stopped") || slices.Contains(w.events, "Warning Stopped") {
		t.Errorf("events %v", w.events)
	}
}

// TestHurried: so does one that is shortened, once, and nobody waits for the guest.
func TestHurried(t *testing.T) {
	w := newWorld(t)
	w.ownGrace = durationpb.New(time.Minute)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.guest().stays = true
	vmi := w.instance()
	scene.Grace(5)(vmi)
	w.must(w.server.Update(t.Context(), vmi))
	w.during(3)
	if len(w.hurried) > 0 {
		t.Fatalf("a guest that nobody ends was hurried: %v", w.hurried)
	}
	w.deleteInstance()
	w.until("it is gone", w.in("gone"))
	if !slices.Equal(w.hurried, []int64{5000}) || !w.killBounded {
		t.Errorf("hurried with %v ms, bounded %v, want 5000 once", w.hurried, w.killBounded)
	}
}

// TestEvents: KubeVirt's reasons, each once.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.guest().state = nodev1.State_STATE_PAUSED
	w.during(2)
	w.guest().state = nodev1.State_STATE_RUNNING
	w.during(2)
	w.deleteInstance()
	w.until("it is gone", w.in("gone"))
	want := []string{"Normal SuccessfulCreate", "Normal Started", "Normal Paused", "Normal Unpaused",
		"Normal SuccessfulDelete", "Normal ShuttingDown", "Normal Stopped", "Normal Deleted"}
	if !slices.Equal(w.events, want) {
		t.Errorf("events %v, want %v", w.events, want)
	}
}

// TestRemovesThatVeryPod: another pod that has got the name meanwhile is not deleted.
func TestRemovesThatVeryPod(t *testing.T) {
	w := newWorld(t)
	p := &view.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "virt-launcher-web", UID: "first"}, Spec: corev1.PodSpec{NodeName: "node-a"},
	}}
	other := p.DeepCopy()
	other.UID = "second"
	w.must(w.server.Create(t.Context(), other))
	var asked *types.UID
	r := w.controller()
	r.Client = interceptor.NewClient(w.server, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if all := new(client.DeleteOptions).ApplyOptions(opts); all.Preconditions != nil {
				asked = all.Preconditions.UID
			}
			return apierrors.NewConflict(corev1.Resource("pods"), o.GetName(), errors.New("another UID"))
		},
	})
	writer := podWriter{&round{Reconciler: r, o: new(view.View)}}
	if err := writer.remove(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if asked == nil || *asked != "first" {
		t.Errorf("deleted is what has the UID %v, want that of the pod", asked)
	}
	if !p.Gone || p.UID != "first" {
		t.Errorf("gone: %v, UID %s; want that the pod is gone", p.Gone, p.UID)
	}
}

// TestVanishedPod: a pod whose finalizer somebody has removed does not count as ended, and
// what its agent says does.
func TestVanishedPod(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.removePods()
	w.during(5)
	if w.phase() != kubevirtv1.PhaseUnknown {
		t.Fatalf("phase %s while the guest runs", w.phase())
	}
	w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
	if !w.within(2*confirmAgain, w.in(kubevirtv1.PhaseFailed)) {
		t.Errorf("phase %s: no agent was asked again", w.phase())
	}
}

// TestRefusedPromise: an agent that finds a process of the container is asked again, as it tells
// nothing when that has ended.
func TestRefusedPromise(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	m, g := w.nodes[w.instance().Status.NodeName], w.guest()
	m.noKubelet = true
	w.deletePods()
	g.state = nodev1.State_STATE_STOPPED // as the VMM says; the shim is still there
	if w.within(2*time.Second, w.in(kubevirtv1.PhaseFailed)) {
		t.Fatal("it has ended while a process runs")
	}
	g.runs = false
	if !w.within(2*confirmAgain, func() bool { return view.IsFinal(w.phase()) }) {
		t.Errorf("phase %s: the agent was not asked again", w.phase())
	}
}

// TestNobodyWaits: while an agent has not answered whether a VM has ended, nothing follows, and no
// worker waits for it; its answer counts when it has come.
func TestNobodyWaits(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addInstance()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	asks := hanging{make(map[calls.Key]func(context.Context) (Answers, error)), make(map[calls.Key]calls.Answer[Answers])}
	w.asks = asks
	w.nodes[w.instance().Status.NodeName].noKubelet = true
	w.deletePods()
	w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
	w.reconcile(w.controller())
	if view.IsFinal(w.phase()) || len(asks.made) != 1 {
		t.Fatalf("phase %s and %d calls, want one whose answer has not come", w.phase(), len(asks.made))
	}
	asks.end(t.Context())
	if w.reconcile(w.controller()); !view.IsFinal(w.phase()) {
		t.Errorf("phase %s though the agent has promised that it has ended", w.phase())
	}
}

// TestOnePodInItsLife: a cache that does not know that an instance had a pod gives it no second
// one, whether its VM has ended or not.
func TestOnePodInItsLife(t *testing.T) {
	for name, end := range map[string]bool{"ended": true, "vanished": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.restarts = false
			w.addInstance()
			fresh := w.snapshot()
			w.until("it runs", w.in(kubevirtv1.PhaseRunning))
			if end {
				w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
				w.until("it has ended", w.in(kubevirtv1.PhaseSucceeded))
				w.during(2)
			}
			w.removePods()
			was := w.phase()
			w.cached = fresh
			w.reconcile(w.controller())
			if left := w.pods(); len(left) > 0 {
				t.Errorf("pod %s is left", left[0].UID)
			}
			w.cached = nil
			w.during(2)
			if !end {
				was = kubevirtv1.PhaseUnknown
			}
			if left := w.pods(); len(left) > 0 || w.phase() != was {
				t.Errorf("phase %s, want %s; pods %v", w.phase(), was, left)
			}
		})
	}
}

// TestKillIsBounded: an agent that does not answer holds up no controller.
func TestKillIsBounded(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.guest().stays = true
	w.deleteInstance()
	vmi := w.instance()
	scene.Grace(0)(vmi)
	w.must(w.server.Update(t.Context(), vmi))
	w.until("it is gone", w.in("gone"))
	if !w.killBounded {
		t.Error("the agent may take as long as it likes")
	}
}

// TestWebhookChangesLabels: one that undoes the pod's labels costs a write each time the instance
// is looked at, and no more.
func TestWebhookChangesLabels(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.during(2)
	vmi := w.instance()
	vmi.Labels["tier"] = "front"
	w.must(w.server.Update(t.Context(), vmi))
	w.mutate = func(p *corev1.Pod) { p.Labels["tier"] = "other" }
	before := len(w.writes)
	w.reconcile(w.controller())
	if got := w.writes[before:]; len(got) != 1 || len(w.errors) > 0 {
		t.Errorf("writes %v, errors %v", got, w.errors)
	}
}
