package instance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/status"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/machineid"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/suites"
)

// lives are what VMs go through. Each ends in the same state, whatever fails on the way.
var lives = []struct {
	name string
	live func(w *world)
}{
	{"starts", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	}},
	{"guest shuts down and is started again", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first := w.instance().UID
		w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"stands by while it runs, and is taken", func(w *world) {
		w.restarts = false
		w.addInstance(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Labels[contract.LabelPoolStandby] = "Running" })
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		w.change(func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Annotations = map[string]string{contract.AnnotationPoolPaused: string(vmi.UID)}
		})
		w.until("it is paused", func() bool { return w.guest().state == nodev1.State_STATE_PAUSED })
		w.change(func(vmi *kubevirtv1.VirtualMachineInstance) {
			delete(vmi.Labels, contract.LabelPoolStandby)
			vmi.Annotations = nil
		})
		w.until("it serves", func() bool {
			p := w.pods()[0]
			stands := p.Labels[contract.LabelPoolStandby] != ""
			gate := view.PodCondition(&p, contract.ConditionServes)
			runs := w.guest().state == nodev1.State_STATE_RUNNING
			if (gate != nil || !stands) && !runs || gate == nil && !stands {
				w.t.Fatalf("the pod serves: gate %+v, standing by %v, the guest %v", gate, stands, w.guest().state)
			}
			return !stands
		})
	}},
	{"panics and is not started again", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		w.restarts = false
		w.guest().stop(nodev1.EndReason_END_REASON_PANICKED)
		w.until("it has failed", w.in(kubevirtv1.PhaseFailed))
	}},
	{"is deleted while it runs", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		w.deleteInstance()
		w.until("it is gone", w.in("gone"))
	}},
	{"is deleted before its pod is bound", func(w *world) {
		for name := range w.nodes {
			w.taint(name)
		}
		w.until("it is scheduled", w.in(kubevirtv1.PhaseScheduling))
		w.deleteInstance()
		w.until("it is gone", w.in("gone"))
	}},
	{"is deleted, and its pod orphaned", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		for _, p := range w.pods() {
			p.OwnerReferences = nil
			w.must(w.server.Update(w.t.Context(), &p))
		}
		w.deleteInstance()
		w.until("it is gone", w.in("gone"))
	}},
	{"its pod is deleted", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		w.restarts = false
		w.deletePods()
		w.until("it has shut down", w.in(kubevirtv1.PhaseSucceeded))
	}},
	{"its node is out of service", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first, node := w.instance().UID, w.instance().Status.NodeName
		w.fail(node, false)
		w.until("it is unknown", w.in(kubevirtv1.PhaseUnknown))
		w.deletePods()
		w.during(12)
		if w.phase() != kubevirtv1.PhaseUnknown || w.instance().UID != first {
			w.t.Fatalf("phase %s of %s while the guest may run", w.phase(), w.instance().UID)
		}
		w.fail(node, true)
		w.taint(node)
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"its node is deleted", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first, node := w.instance().UID, w.instance().Status.NodeName
		w.fail(node, true)
		n, err := observe.Get(w.t.Context(), w.server, types.NamespacedName{Name: node}, new(corev1.Node))
		w.must(err)
		w.must(w.server.Delete(w.t.Context(), n))
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"another machine takes its node's name", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first, node := w.instance().UID, w.instance().Status.NodeName
		old := w.replace(node)
		w.deletePods()
		w.during(12)
		if w.phase() != kubevirtv1.PhaseUnknown || w.instance().UID != first {
			w.t.Fatalf("phase %s of %s while the guest may run on the first machine", w.phase(), w.instance().UID)
		}
		w.fail(old, true)
		w.taint(node) // says nothing of the first machine
		w.during(12)
		if w.phase() != kubevirtv1.PhaseUnknown || w.instance().UID != first {
			w.t.Fatalf("phase %s of %s while nobody has said that the first machine is off", w.phase(), w.instance().UID)
		}
		w.taintWith(node, contract.TaintFormerMachineOff)
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"its machine is started again", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first, node := w.instance().UID, w.instance().Status.NodeName
		w.fail(node, true)
		w.until("it is unknown", w.in(kubevirtv1.PhaseUnknown))
		w.deletePods()
		w.nodes[node] = w.newMachine(node)
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"its node comes back", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first, node := w.instance().UID, w.instance().Status.NodeName
		w.fail(node, false)
		w.until("it is unknown", w.in(kubevirtv1.PhaseUnknown))
		w.deletePods()
		w.during(6)
		w.nodes[node].dead = false
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"all finalizers are taken from the instance", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first := w.instance().UID
		w.guest().stays = true
		w.forgetInstance()
		w.during(20) // the next instance is there, and the first one's guest still runs
		if w.instance().UID == first || len(w.instance().Status.ActivePods) > 0 {
			w.t.Fatal("the next instance has not waited")
		}
		w.guest().stays = false
		w.until("another runs", w.in(kubevirtv1.PhaseRunning))
	}},
	{"the kubelet loses sight of its container", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first := w.instance().UID
		g := w.guest()
		g.unseen = true
		w.until("it is unknown", w.in(kubevirtv1.PhaseUnknown))
		w.during(12)
		if w.instance().UID != first || w.phase() != kubevirtv1.PhaseUnknown {
			w.t.Fatalf("phase %s of %s while the guest runs", w.phase(), w.instance().UID)
		}
		g.stop(nodev1.EndReason_END_REASON_SHUTDOWN)
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
	}},
	{"the kubelet is lost, not the agent", func(w *world) {
		w.until("it runs", w.in(kubevirtv1.PhaseRunning))
		first, node := w.instance().UID, w.instance().Status.NodeName
		w.nodes[node].noKubelet, w.tick = true, 10*time.Second
		w.until("it is unknown", w.in(kubevirtv1.PhaseUnknown))
		w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
		w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
		w.nodes[node].noKubelet = false
	}},
}

func (w *world) deleteInstance() {
	w.restarts = false
	w.must(w.server.Delete(w.t.Context(), w.instance()))
}

// forgetInstance removes the instance as somebody does who is tired of waiting.
func (w *world) forgetInstance() {
	vmi := w.instance()
	vmi.Finalizers = nil
	w.must(w.server.Update(w.t.Context(), vmi))
	w.must(w.server.Delete(w.t.Context(), vmi))
}

// deletePods deletes the VM's pods by force.
func (w *world) deletePods() {
	for _, p := range w.pods() {
		w.unhold(&p)
		if p.DeletionTimestamp == nil {
			w.must(w.server.Delete(w.t.Context(), &p))
		}
	}
}

// settled: nothing is left that ought not to be there, and nothing is written any more.
func (w *world) settled() {
	w.t.Helper()
	w.during(12)
	vmi := w.instance()
	for _, p := range w.pods() {
		if vmi == nil || view.UIDOf(p.Labels) != vmi.UID {
			w.t.Fatalf("pod %s is left: %+v", p.Name, p.ObjectMeta)
		}
		if view.IsFinal(vmi.Status.Phase) && slices.Contains(p.Finalizers, contract.FinalizerPod) {
			w.t.Fatalf("pod %s is held though its VM has ended", p.Name)
		}
	}
	for _, p := range w.attachments() {
		if vmi == nil || view.IsFinal(vmi.Status.Phase) || vmi.Spec.StopStrategy == "" {
			w.t.Fatalf("pod %s is left, which attaches a volume", p.Name)
		}
	}
	before := len(w.writes)
	for range 12 {
		w.now = w.now.Add(5 * time.Minute)
		w.watchNodes()
		w.reconcile(w.controller())
	}
	if len(w.writes) > before {
		w.t.Fatalf("written in an idle hour: %v", w.writes[before:])
	}
}

// TestLives: each life, and each with every write failing, lost, and the controller killed
// before and after it. One that is lost is much like one after which the controller is
// killed, and one before like one that fails: the short form has one of each, by turns.
func TestLives(t *testing.T) {
	for _, l := range slices.Concat(lives, savedLives) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l.live(w)
			w.settled()
			writes := w.writes
			if len(w.errors) > 0 {
				t.Errorf("errors though nothing failed: %v", w.errors)
			}
			suites.Walk(t)
			all := []map[string]outcome{{"is lost": lost}, {"killed before": killedBefore}}
			if everything.Wanted() {
				all = []map[string]outcome{{"is lost": lost, "killed before": killedBefore, "fails": fails, "killed after": killedAfter}}
			}
			for n := range writes {
				for name, become := range all[n%len(all)] {
					t.Run(fmt.Sprintf("write %d %s", n+1, name), func(t *testing.T) {
						w := newWorld(t)
						w.before = func(i int, _ string) outcome {
							if i == n+1 {
								return become
							}
							return succeeds
						}
						l.live(w)
						w.settled()
					})
				}
			}
		})
	}
}

// short leaves of the variants of a life, by its place, the first: lives of VMs that are saved take
// long, and the short form of the tests has one of each.
func short(life int, variants ...int) []int {
	if life >= len(lives) && !everything.Wanted() {
		return variants[:1]
	}
	return variants
}

// TestTwoControllers: at each write of one controller another does all it can, with a cache
// that is as old as the last turn, or older.
func TestTwoControllers(t *testing.T) {
	suites.Walk(t)
	for i, l := range slices.Concat(lives, savedLives) {
		for _, behind := range short(i, 1, 0, 10) {
			t.Run(fmt.Sprintf("%s, %d turns behind", l.name, behind), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				inner := false
				var caches []clientAt
				w.before = func(int, string) outcome {
					if inner {
						return succeeds
					}
					inner = true
					defer func() { inner = false }()
					caches = append(caches, clientAt{w.now, w.snapshot()})
					was := w.cached
					for i := len(caches) - 1; i >= 0; i-- {
						if w.cached = caches[i].client; w.now.Sub(caches[i].at) >= time.Duration(behind)*time.Second {
							break
						}
					}
					w.process = 1
					w.reconcile(w.controller())
					w.process = 0
					w.cached = was
					return succeeds
				}
				l.live(w)
				w.before = nil
				w.settled()
			})
		}
	}
}

// TestStaleCache: a controller whose cache stays behind for a while does no harm, and goes on
// when the cache has caught up.
func TestStaleCache(t *testing.T) {
	suites.Walk(t)
	for i, l := range slices.Concat(lives, savedLives) {
		for _, every := range short(i, 9, 2) {
			t.Run(fmt.Sprintf("%s, read every %d turns", l.name, every), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.cached = w.snapshot()
				turns := 0
				w.stale(func() {
					if turns++; turns%every == 0 {
						w.cached = w.snapshot()
					}
				})
				l.live(w)
				w.stale(nil)
				w.cached = nil
				w.settled()
			})
		}
	}
}

// TestWrites: a start takes the pod's creation and two statuses, and one write more for the
// label, after it runs.
func TestWrites(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	want := []string{"create pod", "status instance", "status instance", "patch instance"}
	if !slices.Equal(w.writes, want) {
		t.Errorf("writes %v, want %v", w.writes, want)
	}
	if want := []string{"Normal SuccessfulCreate", "Normal Started"}; !slices.Equal(w.events, want) {
		t.Errorf("events %v, want %v", w.events, want)
	}
	var phases []kubevirtv1.Phase
	for _, p := range w.instance().Status.PhaseTransitionTimestamps {
		phases = append(phases, p.Phase)
	}
	if want := []kubevirtv1.Phase{kubevirtv1.PhasePending, kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduled, kubevirtv1.PhaseRunning}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

// TestVanishedBeforeNoted: of a pod that somebody removed before the status had its node, the agents
// of all nodes are asked.
func TestVanishedBeforeNoted(t *testing.T) {
	w := newWorld(t)
	w.until("its pod is made", w.in(kubevirtv1.PhaseScheduling))
	first := w.instance().UID
	w.turn() // the guest runs
	g := w.guest()
	w.removePods()
	w.during(12)
	if c := condition.Find(w.instance().Status.Conditions, kubevirtv1.ConditionReady); w.instance().UID != first || w.phase() != kubevirtv1.PhaseUnknown ||
		!strings.Contains(c.Message, "those of nodes node-a have not") {
		t.Fatalf("phase %s of %s while the guest runs: %+v", w.phase(), w.instance().UID, c)
	}
	g.stop(nodev1.EndReason_END_REASON_SHUTDOWN)
	for _, m := range w.nodes {
		m.noKubelet = false
	}
	w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
}

// TestNoAnswer: an agent that can't be asked has promised nothing, whether the pod's node is known or all
// nodes are asked.
func TestNoAnswer(t *testing.T) {
	for name, seen := range map[string]kubevirtv1.Phase{"its node is noted": kubevirtv1.PhaseRunning, "its node is not": kubevirtv1.PhaseScheduling} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.until("the controller sees it", w.in(seen))
			first := w.instance().UID
			w.turn() // the guest runs
			w.removePods()
			for _, m := range w.nodes {
				m.noAgent = true
			}
			w.during(12)
			if w.instance().UID != first || w.phase() != kubevirtv1.PhaseUnknown || len(w.pods()) != 0 {
				t.Fatalf("phase %s of %s and %d pods while the guest runs and no agent answers", w.phase(), w.instance().UID, len(w.pods()))
			}
		})
	}
}

// TestNewLeader: a controller that has just begun does not take a node for lost whose agent it has
// not heard yet.
func TestNewLeader(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	first := w.instance().UID
	m := w.nodes[w.instance().Status.NodeName]
	n, err := observe.Get(t.Context(), w.server, types.NamespacedName{Name: m.name}, new(corev1.Node))
	w.must(err)
	w.must(w.server.Delete(t.Context(), n))
	m.noAgent = true // it is being restarted
	w.during(30)
	m.noAgent = false
	w.during(12)
	if w.instance().UID != first || w.phase() != kubevirtv1.PhaseRunning {
		t.Fatalf("phase %s of %s: its guest runs, and its agent says so", w.phase(), w.instance().UID)
	}
	w.fail(m.name, true)
	w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning && w.instance().UID != first })
}

// TestAnotherMachine: what kubelet and agent of another machine of the node's name say ends no VM, also if the cache does not
// know of that machine yet, and the condition says which it is and what to do. Who deletes the Node has said that it is over.
func TestAnotherMachine(t *testing.T) {
	saysEnded := func(w *world) {
		p := w.pods()[0]
		w.nodes[p.Spec.NodeName].say(&p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: scene.Container, FinishedAt: metav1.NewTime(w.now)}})
	}
	for name, says := range map[string]func(*world){"a kubelet": saysEnded, "an agent": (*world).deletePods} {
		for _, behind := range []bool{false, true} {
			w := newWorld(t)
			w.until("it runs", w.in(kubevirtv1.PhaseRunning))
			node := w.instance().Status.NodeName
			if got := w.instance().Status.NodeMachine; got == nil || got.Identity != machineid.Of("hardware of "+node) {
				t.Fatalf("the machine that is noted: %+v", got)
			}
			before := w.nodeObject(node)
			old := w.replace(node)
			says(w)
			if w.nodes[node].noKubelet = true; behind { // all else is known
				w.cached = w.snapshot()
				stale := w.nodeObject(node)
				stale.Status = before.Status
				w.must(w.cached.Status().Update(t.Context(), stale))
			}
			for range 3 {
				_, _ = w.controller().Reconcile(t.Context(), reconcile.Request{NamespacedName: vmKey}) // writes may fail
			}
			w.cached = nil
			if w.phase() != kubevirtv1.PhaseUnknown && !(behind && w.phase() == kubevirtv1.PhaseRunning) {
				t.Errorf("%s of another machine, cache behind %v: phase %s", name, behind, w.phase())
			}
			w.reconcile(w.controller())
			c := condition.Find(w.instance().Status.Conditions, kubevirtv1.ConditionReady)
			for _, want := range []string{node + " is another machine", "kubectl taint node " + node} {
				if c.Reason != condition.ReasonNodeReplaced || !strings.Contains(c.Message, want) {
					t.Errorf("%s of another machine: Ready is %+v, want that it says %q", name, c, want)
				}
			}
			w.fail(old, true)
			w.must(w.server.Delete(t.Context(), w.nodeObject(node)))
			w.fail(node, true)
			w.until("another runs", func() bool { return w.phase() == kubevirtv1.PhaseRunning })
		}
	}
}

// TestRunsOnAnotherMachine: a VM that the machine runs which has taken its node's name, too, says so until somebody says that
// the first one is off.
func TestRunsOnAnotherMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*view.Pod)
		warns  bool
	}{
		"the same machine": {func(*view.Pod) {}, false},
		"another":          {func(p *view.Pod) { p.Replaced = true }, true},
		"another, tainted": {func(p *view.Pod) { p.Replaced, p.Node.FormerOff = true, true }, false},
	} {
		s := status.Of(scene.On(kubevirtv1.PhaseRunning, scene.Runs(scene.Running), scene.Heard(scene.Running), c.change).View)
		got := condition.Find(s.Conditions, kubevirtv1.ConditionSynchronized)
		if s.Phase != kubevirtv1.PhaseRunning || (got != nil) != c.warns {
			t.Errorf("%s: %s, %+v", name, s.Phase, got)
		}
		if c.warns && (got.Reason != condition.ReasonNodeReplaced || !strings.Contains(got.Message, "runs on the new one") || !strings.Contains(got.Message, contract.TaintFormerMachineOff)) {
			t.Errorf("%s: it says %s %q", name, got.Reason, got.Message)
		}
	}
}

// TestClockBehind: a node whose clock is behind, and whose agent is away for a while, is not
// unknown while its kubelet renews its Lease.
func TestClockBehind(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	m := w.nodes[w.instance().Status.NodeName]
	m.noAgent, m.behind = true, time.Hour
	w.tick = 10 * time.Second
	r := w.controller()
	for range 12 {
		w.turn()
		w.reconcile(r)
		if w.phase() != kubevirtv1.PhaseRunning {
			t.Fatalf("phase %s", w.phase())
		}
	}
}

// TestUnknownWithinAMinute: also where Kubernetes has not yet said that the node is not ready.
func TestUnknownWithinAMinute(t *testing.T) {
	w := newWorld(t)
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	node := w.instance().Status.NodeName
	w.fail(node, false)
	w.tick = time.Second
	since, next, r := w.now, w.now, w.controller()
	for w.phase() != kubevirtv1.PhaseUnknown && w.now.Sub(since) < time.Minute {
		w.turn()
		if w.now.Before(next) {
			continue // nothing tells the controller of it
		}
		next = w.now.Add(w.reconcile(r).RequeueAfter)
	}
	if w.phase() != kubevirtv1.PhaseUnknown {
		t.Fatalf("phase %s after a minute", w.phase())
	}
	if c := condition.Find(w.instance().Status.Conditions, kubevirtv1.ConditionReady); c.Reason != condition.ReasonNodeUnresponsive || c.Status != metav1.ConditionFalse {
		t.Errorf("Ready is %+v", c)
	}
}
