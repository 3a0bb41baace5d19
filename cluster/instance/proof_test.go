package instance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/internal/machineid"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// answer is what an agent says when it is asked whether a pod's VM has ended.
type answer string

const (
	promises answer = "promises"
	denies   answer = "denies"
	silence  answer = "does not answer"
)

// circumstance is a state of one part of the cluster.
type circumstance struct {
	name string
	set  func(*view.Pod)
}

// objects are what the API server may have of a pod, and what there is of it.
var objects = []circumstance{
	{"unbound", func(*view.Pod) {}},
	{"unbound, deleted", scene.Ending},
	{"gone, node unknown", scene.Gone},
	{"bound", scene.Bound},
	{"bound, deleted", func(p *view.Pod) { scene.Bound(p); scene.Ending(p) }},
	{"bound, deleted by force", func(p *view.Pod) { scene.Bound(p); scene.Ending(p); p.DeletionGracePeriodSeconds = new(int64) }},
	{"gone", func(p *view.Pod) { scene.Gone(p); scene.Bound(p) }},
}

// statuses are what a kubelet says of the VM's container.
var statuses = []circumstance{
	{"nothing", func(*view.Pod) {}},
	{"rejected", scene.Failed},
	{"waiting", scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}})},
	{"running", scene.RunsSince(time.Minute)},
	{"lost sight of", scene.LostSight},
	{"lost sight of, never identified", func(p *view.Pod) { scene.LostSight(p); scene.Unidentified(p) }},
	{"unknown to the runtime", scene.Exited(255, "")},
	{"ended after an unknown run", scene.StartedAnew},
	{seenEnd, scene.Exited(0, "")},
}

const seenEnd = "ended"

// reports are what an agent says by itself.
var reports = []circumstance{
	{awayShort, scene.UnheardFor(view.HeardPatience - 1)},
	{awayLong, scene.UnheardFor(view.HeardPatience)},
	{"has no VM", scene.Heard()},
	{startsVM, scene.Heard(nodev1.State_STATE_STARTING)},
	{runsVM, scene.Heard(scene.Running)},
	{"has it stopped", scene.Heard(scene.Halted)},
	{failedStart, scene.Heard(nodev1.State_STATE_CREATED)},
}

const (
	awayShort = "may come yet"
	awayLong  = "away"
	startsVM  = "starts it"
	runsVM    = "runs it"
	// failedStart is what an agent says of a VM that it could not start, until the pod is gone.
	failedStart = "could not start it"
)

// nodeStates are those of Node objects, with the time for which they have been so left out.
var nodeStates = []circumstance{
	{"ready", func(*view.Pod) {}},
	{"not ready", scene.Readiness(corev1.ConditionFalse)},
	{"unknown", scene.Readiness(corev1.ConditionUnknown)},
	{"tainted, ready", scene.OutOfService},
	{nodeTainted, func(p *view.Pod) { scene.OutOfService(p); scene.Readiness(corev1.ConditionUnknown)(p) }},
	{nodeReplaced, func(p *view.Pod) { p.Replaced = true }},
	{nodeReplacedTainted, func(p *view.Pod) { p.Replaced, p.Node.FormerOff = true, true }},
	{nodeDeleted, func(p *view.Pod) { p.Node = view.Node{} }},
}

const (
	nodeTainted = "tainted"
	nodeDeleted = "deleted"
	// By the name of another machine, which is ready.
	nodeReplaced        = "replaced"
	nodeReplacedTainted = "replaced, tainted"
)

// records are what controllers have written before.
var records = []kubevirtv1.Phase{kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduled, kubevirtv1.PhaseRunning, kubevirtv1.PhaseUnknown, kubevirtv1.PhaseFailed}

// combination is one of all.
type combination struct {
	object, status, report, node circumstance
	answer                       answer
	record                       kubevirtv1.Phase // empty: the pod is that of an earlier instance
	deleted                      bool             // the instance is
}

func (c combination) String() string {
	return fmt.Sprintf("pod %s, container %s, node %s, agent %s and %s, instance %q, deleted %v", c.object.name, c.status.name, c.node.name, c.report.name, c.answer, c.record, c.deleted)
}

func (c combination) unbound() bool {
	return c.object.name == "unbound" || c.object.name == "unbound, deleted"
}

func (c combination) stray() bool { return c.object.name == "gone, node unknown" }

func (c combination) gone() bool { return c.stray() || c.object.name == "gone" }

func (c combination) replaced() bool {
	return c.node.name == nodeReplaced || c.node.name == nodeReplacedTainted
}

func (c combination) says() bool { return c.report.name == startsVM || c.report.name == runsVM }

// exists leaves out what can't be: what nobody can say of a pod without a node or without an object.
func (c combination) exists() bool {
	first := c.status.name == statuses[0].name
	switch {
	case c.unbound():
		return first && c.report.name == awayLong && c.answer == silence && c.node.name == "ready"
	case c.gone():
		return first && c.record != "" && c.record != kubevirtv1.PhaseFailed && !(c.stray() && c.replaced())
	case c.replaced():
		return c.record != "" && c.record != kubevirtv1.PhaseFailed // it is noted in the instance until that has ended
	}
	return true
}

// mayRun is what there is to prove: whether the VM may run though all this is said. This is the
// rule of "never twice" in other words than the code's.
func (c combination) mayRun() bool {
	lost := c.node.name == nodeTainted || c.node.name == nodeDeleted || c.node.name == nodeReplacedTainted
	switch {
	case c.node.name == nodeReplaced: // nobody speaks of the first machine
		return true
	case c.object.name == "unbound, deleted", c.answer == promises && !c.says():
		return false
	case c.status.name == seenEnd && c.node.name != nodeReplacedTainted:
		return c.says()
	case lost && c.report.name == awayLong:
		return c.gone() && c.answer == denies
	}
	return true
}

// observed is what a controller sees.
func (c combination) observed() *view.View {
	if c.record == "" {
		return scene.New().WithOther(c.object.set, c.status.set, c.node.set, c.report.set).View
	}
	s := scene.On(c.record, func(p *view.Pod) { p.UID = "p-1" }, c.status.set, c.object.set, c.node.set, c.report.set)
	if c.unbound() || c.stray() {
		s.Pod.Spec.NodeName = ""
	}
	if c.stray() {
		here := s.Pod.Host
		s.Pod.Host, s.Pod.Hosts = view.Host{}, []*view.Host{&here, {NodeName: "node-b", Node: view.Node{Exists: true, Ready: corev1.ConditionTrue}}}
	}
	if c.replaced() {
		s.Instance.Status.NodeMachine = &kubevirtv1.NodeMachine{NodeUID: "uid-node", Identity: machineid.Of("4c4c4544-0042")}
	}
	if c.deleted {
		s = s.Deleted()
	}
	return s.View
}

// follow has one action's effect seen, and reports whether another VM may be started by it, or the
// pod be lost from sight.
func (c combination) follow(v *view.View, a action.Action) (over bool) {
	switch a := a.(type) {
	case action.CreatePod, action.ReleasePod, action.Finalize:
		return true
	case action.WriteStatus:
		v.Instance.Status = *a.Status
		return view.IsFinal(a.Status.Phase)
	case action.ConfirmEnd:
		c.ask(a.Pod)
	case action.DeletePod:
		c.delete(a.Pod)
	case action.DestroyPod:
		c.delete(a.Pod)
		a.Pod.DeletionGracePeriodSeconds = new(int64)
	case action.KillGuest:
		a.Pod.Hurried = true
	case action.HurryGuest:
		a.Pod.Hurried = true
	case action.PauseGuest:
		a.Pod.Directed = true
	case action.ResumeGuest:
		a.Pod.Directed = true
	case action.Serve:
		a.Pod.Directed = true
	case action.RelabelPod:
		a.Pod.Relabelled = true
	case action.LabelInstance:
		v.Instance.Labels = map[string]string{"kubevirt.io/nodeName": "node-a"}
	}
	return false
}

// delete has a pod be as it is when it is being deleted.
func (c combination) delete(p *view.Pod) {
	scene.Ending(p)
	if c.unbound() && c.mayRun() {
		scene.Bound(p) // as it was before it was deleted
	}
}

// ask is what the agents answer.
func (c combination) ask(p *view.Pod) {
	say := func(h *view.Host, a answer) { h.Asked, h.Promised, h.Denied = true, a == promises, a == denies }
	say(&p.Host, c.answer)
	for i, h := range p.Hosts {
		if i == 0 {
			say(h, c.answer)
		} else {
			say(h, promises)
		}
	}
}

// TestProof walks all combinations of what kubelet, runtime, agent, Node, taint and controllers may
// say: while the VM may run, nothing is done by which it could be started again; what is waited for
// is said; and when the agent confirms the end, or the node is lost, the wait is over.
func TestProof(t *testing.T) {
	tried, waiting := 0, 0
	for _, c := range combinations() {
		v := c.observed()
		tried++
		if c.mayRun() {
			waiting++
			if next := c.walk(v); next != nil {
				t.Errorf("%v: %v though the VM may run", c, next)
			} else if why := untold(v); why != "" {
				t.Errorf("%v: waits, and %s", c, why)
			}
		}
		if c.record != "" && !c.deleted {
			continue // it may go on
		}
		for _, exit := range c.exits() {
			if exit.walk(exit.observed()) == nil {
				t.Errorf("%v: waits for ever, though now %v", c, exit)
			}
		}
	}
	t.Logf("%d combinations, in %d of which the VM may run", tried, waiting)
}

// walk takes actions until the VM may be started again, or nothing is left to do: it returns the last one.
func (c combination) walk(v *view.View) action.Action {
	for range maxSteps {
		next, _ := decide(v)
		if next == nil || c.follow(v, next) {
			return next
		}
	}
	panic(fmt.Sprintf("%v: not settled", c))
}

// untold is what is missing where a wait is to be said; empty: it is said.
func untold(v *view.View) string {
	if v.Instance.Status.Phase == kubevirtv1.PhasePending && condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionSynchronized) != nil {
		return "" // another's pod is waited for
	}
	ready := condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionReady)
	switch {
	case v.Final():
		return ""
	case ready == nil:
		return "has no condition Ready"
	case v.Instance.Status.Phase == kubevirtv1.PhaseUnknown && (ready.Status != metav1.ConditionFalse || ready.Reason == "" || ready.Message == ""):
		return fmt.Sprintf("Ready is %+v", ready)
	}
	return ""
}

// exits are what ends each wait: the agent, or whoever says that the node is lost.
func (c combination) exits() []combination {
	confirmed, deleted := c, c
	if c.unbound() {
		return nil
	}
	if confirmed.answer = promises; c.report.name != failedStart {
		confirmed.report = reports[2]
	}
	if c.node.name == nodeReplaced {
		confirmed.node = nodeStates[slices.IndexFunc(nodeStates, func(n circumstance) bool { return n.name == nodeReplacedTainted })]
	}
	deleted.node, deleted.report, deleted.answer = nodeStates[len(nodeStates)-1], reports[1], silence
	return []combination{confirmed, deleted}
}

func combinations() (all []combination) {
	for _, object := range objects {
		for _, status := range statuses {
			for _, report := range reports {
				for _, n := range nodeStates {
					for _, a := range []answer{promises, denies, silence} {
						all = append(all, combination{object, status, report, n, a, "", false})
						for _, record := range records {
							all = append(all, combination{object, status, report, n, a, record, false}, combination{object, status, report, n, a, record, true})
						}
					}
				}
			}
		}
	}
	var possible []combination
	for _, c := range all {
		if c.exists() {
			possible = append(possible, c)
		}
	}
	return possible
}
