package instance

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// scene is what is observed, as a table's row changes it.
type scene struct{ *view.View }

// newScene is an instance that nothing has been done for.
func newScene() scene {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: vmName, UID: "uid-0001", Generation: 1, Finalizers: []string{contract.FinalizerInstance},
		CreationTimestamp: metav1.NewTime(testTime.Add(-time.Minute)),
	}}
	return scene{&view.View{Now: testTime, Instance: vmi, Claims: make(map[string]*corev1.PersistentVolumeClaim)}}
}

// recordedAs has the status be as it would have been written in this state, with a phase.
func (s scene) recordedAs(phase kubevirtv1.Phase) scene {
	for _, p := range []kubevirtv1.Phase{kubevirtv1.PhasePending, kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduled, kubevirtv1.PhaseRunning} {
		s.Instance.Status.PhaseTransitionTimestamps = append(s.Instance.Status.PhaseTransitionTimestamps,
			kubevirtv1.PhaseTransition{Phase: p, PhaseTransitionTimestamp: metav1.NewTime(testTime)})
		if p == phase {
			break
		}
	}
	s.Instance.Status.Phase = phase
	return s
}

// written has the status be what would be written now.
func written(s scene) scene {
	s.Instance.Status = *statusOf(s.View)
	return s
}

func (s scene) withPod(change ...func(*view.Pod)) scene {
	made, _ := makePod(s.Instance, nil)
	made.UID = "p-1"
	p := &view.Pod{Pod: made, Host: view.Host{Node: view.Node{Exists: true, Ready: corev1.ConditionTrue, Since: testTime.Add(-time.Hour)}}}
	for _, f := range change {
		f(p)
	}
	s.Pod = p
	return s
}

// then changes the pod after all else.
func (s scene) then(change ...func(*view.Pod)) scene {
	for _, f := range change {
		f(s.Pod)
	}
	return s
}

func (s scene) withOther(change ...func(*view.Pod)) scene {
	t := newScene().withPod(change...)
	t.Pod.Labels[contract.LabelCreatedBy] = "uid-0000"
	s.Others = append(s.Others, t.Pod)
	return s
}

func (s scene) change(changes ...func(*kubevirtv1.VirtualMachineInstance)) scene {
	for _, f := range changes {
		f(s.Instance)
	}
	return s
}

func (s scene) deleted() scene {
	return s.change(func(v *kubevirtv1.VirtualMachineInstance) { v.DeletionTimestamp = &metav1.Time{Time: testTime} })
}

func bound(p *view.Pod) { p.Spec.NodeName = "node-a" }

func ending(p *view.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testTime} }

func free(p *view.Pod) { p.Finalizers = nil }

func gone(p *view.Pod) {
	p.Gone, p.Pod = true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}}
}

func failed(p *view.Pod) { p.Status.Phase = corev1.PodFailed }

func promised(p *view.Pod) { p.Promised = true }

func asked(p *view.Pod) { p.Asked = true }

func denied(p *view.Pod) { p.Denied = true }

// unidentified: the kubelet has no id of the VM's container.
func unidentified(p *view.Pod) { p.Status.ContainerStatuses[0].ContainerID = "" }

// finishedAgo has the container's end be some time ago.
func finishedAgo(d time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { view.ComputeEnd(p.Pod).FinishedAt = metav1.NewTime(testTime.Add(-d)) }
}

func inState(c corev1.ContainerState) func(*view.Pod) {
	return func(p *view.Pod) {
		bound(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ContainerCompute, ContainerID: testContainer, State: c}}
	}
}

func runsSince(ago time.Duration) func(*view.Pod) {
	return inState(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(testTime.Add(-ago))}})
}

func exited(code int32, message string) func(*view.Pod) {
	return inState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Message: message, ContainerID: testContainer, FinishedAt: metav1.NewTime(testTime)}})
}

// lostSight has the kubelet say what it says of a container of which its runtime knows nothing.
func lostSight(p *view.Pod) {
	inState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated"}})(p)
	p.Status.Phase = corev1.PodFailed
}

// startedAnew has the kubelet have started the container again, as its runtime could not say whether it
// runs, and that run have ended.
func startedAnew(p *view.Pod) {
	exited(1, "another vmlet-shim has this volume")(p)
	c := &p.Status.ContainerStatuses[0]
	c.RestartCount, c.LastTerminationState.Terminated = 1, &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}
}

// unheardFor has the pod's agent have been away for some time.
func unheardFor(d time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { p.Report = nodes.Report{Silence: d} }
}

// mayHaveBeenOn are the nodes of a pod that vanished before anybody noted its node.
func mayHaveBeenOn(hosts ...view.Host) func(*view.Pod) {
	return func(p *view.Pod) {
		gone(p)
		p.Hosts = []*view.Host{}
		for i := range hosts {
			hosts[i].Node.Exists = true
			p.Hosts = append(p.Hosts, &hosts[i])
		}
	}
}

// testContainer is the id of the container that runs the VM.
const testContainer = "containerd://0123"

// reasoned gives the end of the VM's container the kubelet's reason.
func reasoned(reason string) func(*view.Pod) {
	return func(p *view.Pod) { view.ComputeStatus(p.Pod).State.Terminated.Reason = reason }
}

func heard(states ...nodev1.State) func(*view.Pod) {
	return func(p *view.Pod) {
		p.Report = nodes.Report{Current: true}
		for _, s := range states {
			p.Report.VM = &nodev1.VirtualMachine{Status: &nodev1.VirtualMachineStatus{State: s, EffectiveSpec: &specv1.VirtualMachineSpec{}}}
		}
	}
}

func endedBy(r nodev1.EndReason) func(*view.Pod) {
	return func(p *view.Pod) {
		heard(nodev1.State_STATE_STOPPED)(p)
		p.Report.VM.Status.EndReason, p.Report.VM.Status.Message = r, "QEMU aborted"
	}
}

func readiness(s corev1.ConditionStatus) func(*view.Pod) {
	return func(p *view.Pod) { p.Node.Ready = s }
}

func outOfService(p *view.Pod) { p.Node.OutOfService = true }

// noNode: the Node was deleted, when its agent had long been away.
func noNode(p *view.Pod) {
	p.Node = view.Node{}
	p.Report.Silence = view.HeardPatience
}

func renewed(ago time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { p.Node.Renewed = testTime.Add(-ago) }
}

const (
	running  = nodev1.State_STATE_RUNNING
	stopping = nodev1.State_STATE_STOPPING
	halted   = nodev1.State_STATE_STOPPED
)

func onClaim(v *kubevirtv1.VirtualMachineInstance) {
	v.Spec.Volumes = []kubevirtv1.Volume{{Name: "root", DataVolume: &kubevirtv1.DataVolumeSource{Name: "data"}}}
}

func (s scene) withClaim(phase string) scene {
	is := true
	s.Claims["data"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data", Annotations: map[string]string{claims.ImportPhase: phase},
		OwnerReferences: []metav1.OwnerReference{{Kind: claims.DataVolumeKind, Name: "data", Controller: &is}},
	}}
	s.Filling = make(map[string]*condition.Fault)
	if claims.ImportOf(s.Claims["data"]) != "" {
		s.Filling["data"] = claims.Unfilled(s.Claims["data"], phase)
	}
	return s
}

func (s scene) claimDeleted() scene {
	s.Claims["data"].DeletionTimestamp = &metav1.Time{Time: testTime}
	return s
}

// refilling has vmlet fill the claim, and be in a phase of that.
func (s scene) refilling(phase string) scene {
	s.Claims["data"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data", Annotations: map[string]string{contract.AnnotationImport: "http://h/d", contract.AnnotationImportPhase: phase},
	}}
	return s
}

func noFinalizer(v *kubevirtv1.VirtualMachineInstance) { v.Finalizers = nil }

func grace(seconds int64) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.TerminationGracePeriodSeconds = &seconds }
}

func ownGrace(d time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { p.Report.VM.Status.EffectiveSpec.StopGracePeriod = durationpb.New(d) }
}

// on is a scene with a pod that has all of this.
func on(phase kubevirtv1.Phase, change ...func(*view.Pod)) scene {
	return newScene().withPod(change...).recordedAs(phase)
}

// asleep is an instance that is being deleted, whose guest was saved.
func asleep(s scene) scene {
	return written(s).change(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Reason = condition.ReasonSaved }).deleted()
}

// nameOf is an action's; empty: there is none.
func nameOf(a action.Action) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// TestDecide: the next action in every state. What is written has the phase.
func TestDecide(t *testing.T) {
	const (
		pending, scheduling, scheduled = kubevirtv1.PhasePending, kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduled
		isRunning, succeeded, failing  = kubevirtv1.PhaseRunning, kubevirtv1.PhaseSucceeded, kubevirtv1.PhaseFailed
		unknown                        = kubevirtv1.PhaseUnknown
	)
	for _, test := range []struct {
		name string
		in   scene
		want string
	}{
		{"new", newScene(), "create"},
		{"new without a finalizer", newScene().change(noFinalizer), "protect"},
		{"new, no claim", newScene().change(onClaim), "write Pending"},
		{"new, no claim, written", written(newScene().change(onClaim)), ""},
		{"waiting, the claim came", written(newScene().change(onClaim)).withClaim(claims.ImportSucceeded), "create"},
		{"new, claim being filled", newScene().change(onClaim).withClaim("Running"), "write Pending"},
		{"new, claim being deleted", newScene().change(onClaim).withClaim(claims.ImportSucceeded).claimDeleted(), "write Pending"},
		{"not bound, claim being filled again", on(scheduling).change(onClaim).refilling(contract.ImportInProgress), "delete"},
		{"not bound, claim filled", written(on(scheduling).change(onClaim).refilling(contract.ImportSucceeded)), ""},
		{"bound, claim being filled again", written(on(scheduling, bound).change(onClaim).refilling(contract.ImportInProgress)), ""},
		{"refused", scene{&view.View{Now: testTime, Instance: newScene().Instance, Fault: &condition.Fault{Reason: condition.ReasonFailedCreate, Message: "quota"}}}, "write Pending"},
		{"new, an earlier pod runs", newScene().withOther(runsSince(time.Minute), ending, heard(running)), "write Pending"},
		{"new, an earlier pod is not deleted", newScene().withOther(runsSince(time.Minute), heard(running)), "delete"},
		{"new, an earlier pod has ended", newScene().withOther(exited(0, ""), ending), "release"},
		{"new, an earlier pod is released", newScene().withOther(exited(0, ""), ending, free), "create"},
		{"new, an earlier pod may have ended", newScene().withOther(runsSince(time.Minute), ending, heard()), "confirm"},
		{"new, an earlier pod's container is lost sight of", newScene().withOther(lostSight, ending, heard(running)), "write Pending"},
		{"new, an earlier pod's node is lost, its agent may come yet", newScene().withOther(runsSince(time.Minute), ending, noNode, unheardFor(time.Second)), "write Pending"},
		{"new, an earlier pod's node is lost", newScene().withOther(runsSince(time.Minute), ending, noNode), "destroy"},
		{"gone, a pod is left", scene{&view.View{Now: testTime}}.withOther(runsSince(time.Minute)), "delete"},
		{"gone, its pod ends", scene{&view.View{Now: testTime}}.withOther(runsSince(time.Minute), ending, heard(running)), ""},
		{"gone, its pod has ended", scene{&view.View{Now: testTime}}.withOther(exited(1, ""), ending), "release"},
		{"new, deleted", newScene().deleted(), "write Failed"},
		{"new, deleted, written", written(newScene().deleted()), "finalize"},

		{"made", newScene().withPod(), "write Scheduling"},
		{"made, written", written(newScene().withPod()), ""},
		{"bound", written(on(scheduling, bound)), ""},
		{"its container runs", written(newScene().withPod()).withPod(runsSince(0), heard()), ""},
		{"its container runs for long", written(newScene().withPod()).withPod(runsSince(time.Minute), heard()), "write Scheduled"},
		{"the agent has it run", on(scheduled, runsSince(time.Minute), heard(running)), "write Running"},
		{"the agent has it start", written(on(scheduled, runsSince(time.Minute), heard(nodev1.State_STATE_STARTING))), ""},
		{"the kubelet does not know yet", written(on(scheduling, bound, heard(running))), ""},
		{"runs, written", written(on(scheduled, runsSince(0), heard(running))), "label"},
		{"runs, the agent is away", on(isRunning, runsSince(time.Minute), renewed(time.Second)), "write Running"},
		{"runs, the agent knows nothing", on(isRunning, runsSince(time.Minute), heard()), "write Running"},
		{"pod failed before it was bound", on(scheduling, failed), "delete"},
		{"pod vanished, node unknown", on(scheduling, gone), "confirm"},
		{"pod vanished, node unknown, all agents have confirmed", on(scheduling, mayHaveBeenOn(view.Host{Promised: true}, view.Host{Promised: true})), "write Failed"},
		{"pod vanished, node unknown, one has not", on(scheduling, mayHaveBeenOn(view.Host{Promised: true}, view.Host{Asked: true}), asked), "write Unknown"},
		{"pod vanished, it was never bound", on(scheduling, gone, ending), "write Failed"},
		{"pod vanished, its VM runs", on(isRunning, runsSince(0), heard(running), gone, bound), "write Unknown"},
		{"pod vanished, the agent has no VM", on(isRunning, runsSince(0), gone, bound, heard()), "confirm"},
		{"pod vanished, the agent is not listened to", on(isRunning, runsSince(0), gone, bound), "confirm"},

		{"shut down", on(isRunning, exited(0, "")), "write Succeeded"},
		{"failed", on(isRunning, exited(1, "x")), "write Failed"},
		{"the agent's report over the exit code", on(isRunning, exited(0, ""), endedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), "write Failed"},
		{"ended by the agent's report alone", on(isRunning, runsSince(0), endedBy(nodev1.EndReason_END_REASON_SHUTDOWN)), "write Running"},
		{"ended, not written", on(isRunning, exited(0, ""), ending), "write Succeeded"},
		{"ended, written", written(on(isRunning, exited(0, ""))), "release"},
		{"ended, released", written(on(isRunning, exited(0, ""), free)), ""},
		{"ended, deleted", written(on(isRunning, exited(0, ""))).deleted(), "delete"},
		{"ended, deleted, pod held", written(on(isRunning, exited(0, ""), ending)).deleted(), "release"},
		{"ended, deleted, pod released", written(on(isRunning, exited(0, ""), ending, free)).deleted(), "finalize"},
		{"saved, deleted, pod released", asleep(on(isRunning, exited(0, ""), ending, free)), ""},
		{"saved, deleted, pod gone", asleep(on(isRunning, exited(0, ""), ending, free)).then(gone), "finalize"},
		{"saved, deleted, a volume is attached", asleep(on(isRunning, exited(0, ""), ending, free)).then(gone).attachedBy(onItsWay), ""},
		{"ended, its pod is gone", newScene().recordedAs(succeeded), ""},
		{"ended, and a pod came", newScene().recordedAs(failing).withPod(), "delete"},
		{"ended, and a pod runs", on(failing, runsSince(0), ending, heard(running)), ""},

		{"deleted while it runs", on(isRunning, runsSince(0), heard(running)).deleted(), "delete"},
		{"deleted, its pod ends", written(on(isRunning, runsSince(0), heard(stopping), ending).deleted()), ""},
		{"deleted, its pod was never bound", on(scheduling, ending).deleted(), "write Failed"},
		{"grace set to 0", written(on(isRunning, runsSince(0), heard(running), ownGrace(time.Minute), ending).deleted().change(grace(0))), "kill"},
		{"grace shortened", written(on(isRunning, runsSince(0), heard(running), ownGrace(time.Minute), ending).deleted().change(grace(59))), "hurry"},
		{"grace lengthened", written(on(isRunning, runsSince(0), heard(running), ownGrace(time.Minute), ending).deleted().change(grace(61))), ""},
		{"grace was 0", written(on(isRunning, runsSince(0), heard(running), ownGrace(0), ending).deleted().change(grace(0))), ""},
		{"its pod is deleted", on(isRunning, runsSince(0), heard(running), ending), "write Running"},
		{"its pod is deleted by force", on(isRunning, runsSince(0), heard(halted), ending), "confirm"},
		{"its pod is deleted, the agent is away", written(on(isRunning, runsSince(0), ending, renewed(time.Second))), "label"},

		{"node not heard of", on(isRunning, runsSince(0), renewed(view.LeaseLimit)), "write Unknown"},
		{"node not heard of, pod deleted", on(isRunning, runsSince(0), renewed(view.LeaseLimit), ending), "write Unknown"},
		{"node not heard of, deleted", written(on(isRunning, runsSince(0), renewed(view.LeaseLimit), ending).deleted()), ""},
		{"lease old, agent heard", on(isRunning, runsSince(0), renewed(view.LeaseLimit), heard(running)), "write Running"},
		{"kubelet dead, agent heard", on(isRunning, runsSince(0), readiness(corev1.ConditionUnknown), heard(running)), "write Unknown"},
		{"kubelet dead, VM ended", on(isRunning, runsSince(0), readiness(corev1.ConditionUnknown), heard(halted)), "confirm"},
		{"node not ready, agent heard", on(isRunning, runsSince(0), readiness(corev1.ConditionFalse), heard(running)), "write Running"},
		{"node not ready", on(isRunning, runsSince(0), readiness(corev1.ConditionFalse)), "write Unknown"},
		{"tainted, but ready", on(isRunning, runsSince(0), outOfService, heard(running)), "write Running"},
		{"out of service", on(unknown, runsSince(0), readiness(corev1.ConditionUnknown), outOfService, unheardFor(view.HeardPatience)), "destroy"},
		{"node deleted", on(unknown, runsSince(0), noNode), "destroy"},
		{"node deleted, its agent has the VM run", on(isRunning, runsSince(0), noNode, heard(running)), "write Running"},
		{"node deleted, its agent has it ended", on(isRunning, runsSince(0), noNode, heard(halted)), "confirm"},
		{"node deleted, its agent has not taken it up", on(isRunning, runsSince(0), noNode, heard()), "confirm"},
		{"node deleted, its agent may come yet", on(isRunning, runsSince(0), noNode, unheardFor(time.Second)), "write Unknown"},
		{"node deleted, its agent may come yet, written", written(on(isRunning, runsSince(0), noNode, unheardFor(time.Second))), ""},
		{"out of service, its agent may come yet", written(on(unknown, runsSince(0), readiness(corev1.ConditionUnknown), outOfService, unheardFor(time.Second))), ""},

		{"the kubelet has lost sight, the agent has it run", on(isRunning, lostSight, heard(running)), "write Unknown"},
		{"the same, written", written(on(isRunning, lostSight, heard(running))), ""},
		{"the same, deleted", written(on(isRunning, lostSight, heard(running), ending).deleted()), "hurry"},
		{"the kubelet has lost sight, the agent is away", on(isRunning, lostSight, renewed(time.Second)), "write Unknown"},
		{"the kubelet has lost sight, the agent has no VM", on(isRunning, lostSight, heard()), "confirm"},
		{"the kubelet has lost sight, the agent has confirmed", on(isRunning, lostSight, promised), "write Failed"},
		{"the kubelet has the end, the agent not yet", on(isRunning, exited(0, ""), heard(running)), "write Running"},
		{"the kubelet has the end, the agent never", on(isRunning, exited(0, ""), heard(running), finishedAgo(time.Hour)), "write Unknown"},
		{"node back", on(unknown, runsSince(0), heard(running)).recordedAs(isRunning).change(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = unknown }), "write Running"},
		{"pending again after a restart of nothing", newScene().recordedAs(pending), "create"},
		{"scheduled, no pod", newScene().recordedAs(scheduled), "write Failed"},
	} {
		next, _ := decide(test.in.View)
		got := nameOf(next)
		if w, is := next.(action.WriteStatus); is {
			got += " " + string(w.Status.Phase)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestDestroyedOnce: a pod of a lost node that is being deleted without grace is let go as
// soon as the status says that the VM has ended.
func TestDestroyedOnce(t *testing.T) {
	none := int64(0)
	s := on(kubevirtv1.PhaseUnknown, runsSince(0), noNode, ending)
	s.Pod.DeletionGracePeriodSeconds = &none
	first, _ := decide(s.View)
	if w, is := first.(action.WriteStatus); !is || w.Status.Phase != kubevirtv1.PhaseFailed {
		t.Errorf("first %v", first)
	}
	if then, _ := decide(written(s).View); !action.Is[action.ReleasePod](then) {
		t.Errorf("then %v", then)
	}
}

// TestEnded: what lets a VM start again, and what does not.
func TestEnded(t *testing.T) {
	for _, test := range []struct {
		name   string
		change []func(*view.Pod)
		want   bool
	}{
		{"not bound", nil, false},
		{"not bound, failed", []func(*view.Pod){failed}, false},
		{"not bound, deleted", []func(*view.Pod){ending}, true},
		{"bound", []func(*view.Pod){bound}, false},
		{"bound, deleted", []func(*view.Pod){bound, ending}, false},
		{"failed by others' word", []func(*view.Pod){runsSince(0), failed, ending}, false},
		{"container ended", []func(*view.Pod){exited(1, "")}, true},
		{"agent says so, no promise", []func(*view.Pod){runsSince(0), heard(halted), ending}, false},
		{"agent has no VM", []func(*view.Pod){runsSince(0), heard(), ending}, false},
		{"promised", []func(*view.Pod){runsSince(0), promised}, true},
		{"the kubelet has lost sight", []func(*view.Pod){lostSight}, false},
		{"the kubelet has lost sight, promised", []func(*view.Pod){lostSight, promised}, true},
		{"the kubelet has lost sight of what never ran", []func(*view.Pod){lostSight, unidentified}, false},
		{"ended, and the agent has it run", []func(*view.Pod){exited(0, ""), heard(running)}, false},
		{"ended, and the agent has it start", []func(*view.Pod){exited(0, ""), heard(nodev1.State_STATE_STARTING)}, false},
		{"ended, and the agent has it ended", []func(*view.Pod){exited(0, ""), heard(halted)}, true},
		{"vanished, node unknown", []func(*view.Pod){gone}, false},
		{"vanished, no node may have it", []func(*view.Pod){mayHaveBeenOn()}, true},
		{"vanished, one of two may have it", []func(*view.Pod){mayHaveBeenOn(view.Host{Promised: true}, view.Host{Denied: true, Asked: true})}, false},
		{"vanished, none of two has it", []func(*view.Pod){mayHaveBeenOn(view.Host{Promised: true}, view.Host{Promised: true})}, true},
		{"vanished, node gone, not asked", []func(*view.Pod){gone, bound, noNode}, false},
		{"vanished, node gone, nobody answers", []func(*view.Pod){gone, bound, noNode, asked}, true},
		{"vanished, node gone, its agent denies", []func(*view.Pod){gone, bound, noNode, asked, denied}, false},
		{"node gone, its agent may come yet", []func(*view.Pod){runsSince(0), noNode, unheardFor(view.HeardPatience - 1)}, false},
		{"node gone, its agent has no VM", []func(*view.Pod){runsSince(0), noNode, heard()}, false},
		{"node silent", []func(*view.Pod){runsSince(0), readiness(corev1.ConditionUnknown), renewed(time.Hour)}, false},
		{"node tainted, ready", []func(*view.Pod){runsSince(0), outOfService}, false},
		{"node tainted, not ready", []func(*view.Pod){runsSince(0), outOfService, readiness(corev1.ConditionUnknown), unheardFor(view.HeardPatience)}, true},
		{"node tainted, its agent may come yet", []func(*view.Pod){runsSince(0), outOfService, readiness(corev1.ConditionUnknown), unheardFor(view.HeardPatience - 1)}, false},
		{"node gone", []func(*view.Pod){runsSince(0), noNode}, true},
		{"node gone, its agent has the VM run", []func(*view.Pod){runsSince(0), noNode, heard(running)}, false},
		{"node tainted, its agent has the VM run", []func(*view.Pod){runsSince(0), outOfService, readiness(corev1.ConditionUnknown), heard(running)}, false},
		{"vanished, bound", []func(*view.Pod){gone, bound}, false},
		{"a sidecar ended", []func(*view.Pod){bound, func(p *view.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}}, false},
	} {
		if got := newScene().withPod(test.change...).Pod.Ended(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestEnds: how a VM ended, and what the user reads.
func TestEnds(t *testing.T) {
	noACPI := func(v *kubevirtv1.VirtualMachineInstance) {
		off := false
		v.Spec.Domain.Features = &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: &off}}
	}
	oom := func(p *view.Pod) {
		exited(137, "")(p)
		p.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
	}
	evicted := func(p *view.Pod) {
		exited(137, "")(p)
		p.Status.Reason, p.Status.Message = "Evicted", "The node was low on resource: memory."
	}
	rejected := func(p *view.Pod) {
		failed(p)
		ending(p)
		p.Status.Reason, p.Status.Message = "UnexpectedAdmissionError", "Allocate failed due to no healthy devices"
	}
	sidecar := func(p *view.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "image quay.io/x has no single disk file under /disk; found: etc, usr"}}}}
	}
	for _, test := range []struct {
		name   string
		in     scene
		change func(*kubevirtv1.VirtualMachineInstance)
		phase  kubevirtv1.Phase
		says   string
	}{
		{"shutdown", on("", runsSince(0), endedBy(nodev1.EndReason_END_REASON_SHUTDOWN), exited(0, "")), nil, kubevirtv1.PhaseSucceeded, "the guest shut down"},
		{"saved", on("", exited(0, ""), endedBy(nodev1.EndReason_END_REASON_SAVED)), nil, kubevirtv1.PhaseSucceeded, "saved"},
		{"killed", on("", exited(0, ""), endedBy(nodev1.EndReason_END_REASON_KILLED)), nil, kubevirtv1.PhaseSucceeded, "without a shutdown"},
		{"grace over", on("", exited(0, ""), endedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), nil, kubevirtv1.PhaseFailed, "within its grace period"},
		{"grace over, of 0", on("", exited(0, ""), endedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), grace(0), kubevirtv1.PhaseSucceeded, "without a shutdown"},
		{"grace over, no ACPI", on("", exited(0, ""), endedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), noACPI, kubevirtv1.PhaseSucceeded, "without a shutdown"},
		{"panicked", on("", exited(1, ""), endedBy(nodev1.EndReason_END_REASON_PANICKED)), nil, kubevirtv1.PhaseFailed, "the guest panicked"},
		{"crashed", on("", exited(1, ""), endedBy(nodev1.EndReason_END_REASON_CRASHED)), nil, kubevirtv1.PhaseFailed, "QEMU aborted"},
		{"exit code 0", on("", exited(0, "")), nil, kubevirtv1.PhaseSucceeded, "the guest shut down"},
		{"last words", on("", exited(1, "disks[0].path: no such file")), nil, kubevirtv1.PhaseFailed, "spec.domain.devices.disks: no such file"},
		{"by a signal, over the console's end", on("", exited(137, "login: "), reasoned("Error")), nil, kubevirtv1.PhaseFailed, "signal 9 ended the VM's container"},
		{"the kubelet's words", on("", lostSight, promised), nil, kubevirtv1.PhaseFailed, "could not be located"},
		{"a runtime that doesn't know", on("", exited(255, ""), reasoned("Error"), promised), nil, kubevirtv1.PhaseFailed, "said nothing"},
		{"no words", on("", exited(1, "")), nil, kubevirtv1.PhaseFailed, "kubectl logs virt-launcher-web-"},
		{"a sidecar's words", on("", exited(1, ""), sidecar), nil, kubevirtv1.PhaseFailed, "container volumeroot: image quay.io/x has no single disk file"},
		{"out of memory", on("", oom), nil, kubevirtv1.PhaseFailed, "resources.limits.memory"},
		{"out of memory, heard", on("", oom, endedBy(nodev1.EndReason_END_REASON_CRASHED)), nil, kubevirtv1.PhaseFailed, "resources.limits.memory"},
		{"shut down, and the kubelet late", on("", oom, endedBy(nodev1.EndReason_END_REASON_SHUTDOWN)), nil, kubevirtv1.PhaseSucceeded, "the guest shut down"},
		{"evicted, heard", on("", evicted, endedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), nil, kubevirtv1.PhaseFailed, "was killed; the kubelet evicted the VM's pod: The node was low"},
		{"evicted", on("", evicted), nil, kubevirtv1.PhaseFailed, "the kubelet evicted the VM's pod: The node was low"},
		{"rejected", on("", rejected), nil, kubevirtv1.PhaseFailed, "no healthy devices"},
		{"node deleted", on("", runsSince(0), noNode), nil, kubevirtv1.PhaseFailed, "node node-a was deleted"},
		{"node out of service", on("", runsSince(0), outOfService, readiness(corev1.ConditionFalse)), nil, kubevirtv1.PhaseFailed, "node node-a is out of service"},
		{"deleted unbound", on("", ending), nil, kubevirtv1.PhaseFailed, "deleted before the guest ran"},
	} {
		in := test.in
		if test.change != nil {
			in = in.change(test.change)
		}
		if phase, f := endOf(in.View); phase != test.phase || !strings.Contains(f.Message, test.says) {
			t.Errorf("%s: %s, %q; want %s, %q", test.name, phase, f.Message, test.phase, test.says)
		}
	}
}

// TestWakes: nothing is looked at again for no reason, and what comes with time is.
func TestWakes(t *testing.T) {
	for _, test := range []struct {
		name string
		in   scene
		want time.Duration
	}{
		{"unscheduled", written(newScene().withPod()), 0},
		{"container runs", written(on(kubevirtv1.PhaseScheduling, runsSince(2*time.Second), heard())), 3 * time.Second},
		{"runs", written(on(kubevirtv1.PhaseRunning, runsSince(0), heard(running))), 0},
		{"agent away", written(on(kubevirtv1.PhaseRunning, runsSince(0), renewed(10*time.Second))), 30 * time.Second},
		{"silent", written(on(kubevirtv1.PhaseRunning, runsSince(0), renewed(time.Hour))), view.LeaseLimit},
		{"claim being filled", written(newScene().change(onClaim).withClaim("ImportInProgress")), fillingAgain},
		{"no claim", written(newScene().change(onClaim)), 0},
		{"ended", written(on(kubevirtv1.PhaseRunning, exited(0, ""))), 0},
		{"node deleted, its agent may come yet", written(on(kubevirtv1.PhaseRunning, runsSince(0), noNode, unheardFor(20*time.Second))), 40 * time.Second},
		{"gone, node deleted, its agent may come yet", scene{&view.View{Now: testTime}}.withOther(runsSince(0), noNode, unheardFor(20*time.Second)), 40 * time.Second},
		{"ended, and the agent has it run", written(on(kubevirtv1.PhaseRunning, exited(0, ""), heard(running))), disputePatience},
		{"pod vanished", written(on(kubevirtv1.PhaseRunning, runsSince(0), gone, bound, heard(running))), confirmAgain},
		{"not taken up", written(on(kubevirtv1.PhaseScheduled, runsSince(20*time.Second), heard())), 40 * time.Second},
		{"not taken up for long", written(on(kubevirtv1.PhaseScheduled, runsSince(time.Hour), heard())), 0},
	} {
		if got := nextLook(test.in.View); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
