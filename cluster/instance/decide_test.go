package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/phase"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/status"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// written has the status be what would be written now.
func written(s scene.Scene) scene.Scene {
	s.Instance.Status = *status.Of(s.View)
	return s
}

// asleep is an instance that is being deleted, whose guest was saved.
func asleep(s scene.Scene) scene.Scene {
	return written(s).Change(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Reason = condition.ReasonSaved }).Deleted()
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
		in   scene.Scene
		want string
	}{
		{"new", scene.New(), "create"},
		{"new without a finalizer", scene.New().Change(scene.NoFinalizer), "protect"},
		{"new, no claim", scene.New().Change(scene.OnClaim), "write Pending"},
		{"new, no claim, written", written(scene.New().Change(scene.OnClaim)), ""},
		{"waiting, the claim came", written(scene.New().Change(scene.OnClaim)).WithClaim(claims.ImportSucceeded), "create"},
		{"new, claim being filled", scene.New().Change(scene.OnClaim).WithClaim("Running"), "write Pending"},
		{"new, claim being deleted", scene.New().Change(scene.OnClaim).WithClaim(claims.ImportSucceeded).ClaimDeleted(), "write Pending"},
		{"not bound, claim being filled again", scene.On(scheduling).Change(scene.OnClaim).Refilling(contract.ImportInProgress), "delete"},
		{"not bound, claim filled", written(scene.On(scheduling).Change(scene.OnClaim).Refilling(contract.ImportSucceeded)), ""},
		{"bound, claim being filled again", written(scene.On(scheduling, scene.Bound).Change(scene.OnClaim).Refilling(contract.ImportInProgress)), ""},
		{"refused", scene.Scene{View: &view.View{Now: scene.Time, Instance: scene.New().Instance, Fault: &condition.Fault{Reason: condition.ReasonFailedCreate, Message: "quota"}}}, "write Pending"},
		{"new, an earlier pod runs", scene.New().WithOther(scene.RunsSince(time.Minute), scene.Ending, scene.Heard(scene.Running)), "write Pending"},
		{"new, an earlier pod is not deleted", scene.New().WithOther(scene.RunsSince(time.Minute), scene.Heard(scene.Running)), "delete"},
		{"new, an earlier pod has ended", scene.New().WithOther(scene.Exited(0, ""), scene.Ending), "release"},
		{"new, an earlier pod is released", scene.New().WithOther(scene.Exited(0, ""), scene.Ending, scene.Free), "create"},
		{"new, an earlier pod may have ended", scene.New().WithOther(scene.RunsSince(time.Minute), scene.Ending, scene.Heard()), "confirm"},
		{"new, an earlier pod's container is lost sight of", scene.New().WithOther(scene.LostSight, scene.Ending, scene.Heard(scene.Running)), "write Pending"},
		{"new, an earlier pod's node is lost, its agent may come yet", scene.New().WithOther(scene.RunsSince(time.Minute), scene.Ending, scene.NoNode, scene.UnheardFor(time.Second)), "write Pending"},
		{"new, an earlier pod's node is lost", scene.New().WithOther(scene.RunsSince(time.Minute), scene.Ending, scene.NoNode), "destroy"},
		{"gone, a pod is left", scene.Scene{View: &view.View{Now: scene.Time}}.WithOther(scene.RunsSince(time.Minute)), "delete"},
		{"gone, its pod ends", scene.Scene{View: &view.View{Now: scene.Time}}.WithOther(scene.RunsSince(time.Minute), scene.Ending, scene.Heard(scene.Running)), ""},
		{"gone, its pod has ended", scene.Scene{View: &view.View{Now: scene.Time}}.WithOther(scene.Exited(1, ""), scene.Ending), "release"},
		{"new, deleted", scene.New().Deleted(), "write Failed"},
		{"new, deleted, written", written(scene.New().Deleted()), "finalize"},

		{"made", scene.New().WithPod(), "write Scheduling"},
		{"made, written", written(scene.New().WithPod()), ""},
		{"bound", written(scene.On(scheduling, scene.Bound)), ""},
		{"its container runs", written(scene.New().WithPod()).WithPod(scene.RunsSince(0), scene.Heard()), ""},
		{"its container runs for long", written(scene.New().WithPod()).WithPod(scene.RunsSince(time.Minute), scene.Heard()), "write Scheduled"},
		{"the agent has it run", scene.On(scheduled, scene.RunsSince(time.Minute), scene.Heard(scene.Running)), "write Running"},
		{"the agent has it start", written(scene.On(scheduled, scene.RunsSince(time.Minute), scene.Heard(nodev1.State_STATE_STARTING))), ""},
		{"the kubelet does not know yet", written(scene.On(scheduling, scene.Bound, scene.Heard(scene.Running))), ""},
		{"runs, written", written(scene.On(scheduled, scene.RunsSince(0), scene.Heard(scene.Running))), "label"},
		{"runs, the agent is away", scene.On(isRunning, scene.RunsSince(time.Minute), scene.Renewed(time.Second)), "write Running"},
		{"runs, the agent knows nothing", scene.On(isRunning, scene.RunsSince(time.Minute), scene.Heard()), "write Running"},
		{"pod failed before it was bound", scene.On(scheduling, scene.Failed), "delete"},
		{"pod vanished, node unknown", scene.On(scheduling, scene.Gone), "confirm"},
		{"pod vanished, node unknown, all agents have confirmed", scene.On(scheduling, scene.MayHaveBeenOn(view.Host{Promised: true}, view.Host{Promised: true})), "write Failed"},
		{"pod vanished, node unknown, one has not", scene.On(scheduling, scene.MayHaveBeenOn(view.Host{Promised: true}, view.Host{Asked: true}), scene.Asked), "write Unknown"},
		{"pod vanished, it was never bound", scene.On(scheduling, scene.Gone, scene.Ending), "write Failed"},
		{"pod vanished, its VM runs", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.Gone, scene.Bound), "write Unknown"},
		{"pod vanished, the agent has no VM", scene.On(isRunning, scene.RunsSince(0), scene.Gone, scene.Bound, scene.Heard()), "confirm"},
		{"pod vanished, the agent is not listened to", scene.On(isRunning, scene.RunsSince(0), scene.Gone, scene.Bound), "confirm"},

		{"shut down", scene.On(isRunning, scene.Exited(0, "")), "write Succeeded"},
		{"failed", scene.On(isRunning, scene.Exited(1, "x")), "write Failed"},
		{"the agent's report over the exit code", scene.On(isRunning, scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), "write Failed"},
		{"ended by the agent's report alone", scene.On(isRunning, scene.RunsSince(0), scene.EndedBy(nodev1.EndReason_END_REASON_SHUTDOWN)), "write Running"},
		{"ended, not written", scene.On(isRunning, scene.Exited(0, ""), scene.Ending), "write Succeeded"},
		{"ended, written", written(scene.On(isRunning, scene.Exited(0, ""))), "release"},
		{"ended, released", written(scene.On(isRunning, scene.Exited(0, ""), scene.Free)), ""},
		{"ended, deleted", written(scene.On(isRunning, scene.Exited(0, ""))).Deleted(), "delete"},
		{"ended, deleted, pod held", written(scene.On(isRunning, scene.Exited(0, ""), scene.Ending)).Deleted(), "release"},
		{"ended, deleted, pod released", written(scene.On(isRunning, scene.Exited(0, ""), scene.Ending, scene.Free)).Deleted(), "finalize"},
		{"saved, deleted, pod released", asleep(scene.On(isRunning, scene.Exited(0, ""), scene.Ending, scene.Free)), ""},
		{"saved, deleted, pod gone", asleep(scene.On(isRunning, scene.Exited(0, ""), scene.Ending, scene.Free)).Then(scene.Gone), "finalize"},
		{"saved, deleted, a volume is attached", asleep(scene.On(isRunning, scene.Exited(0, ""), scene.Ending, scene.Free)).Then(scene.Gone).AttachedBy(scene.OnItsWay), ""},
		{"ended, its pod is gone", scene.New().RecordedAs(succeeded), ""},
		{"ended, and a pod came", scene.New().RecordedAs(failing).WithPod(), "delete"},
		{"ended, and a pod runs", scene.On(failing, scene.RunsSince(0), scene.Ending, scene.Heard(scene.Running)), ""},

		{"deleted while it runs", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running)).Deleted(), "delete"},
		{"deleted, its pod ends", written(scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Stopping), scene.Ending).Deleted()), ""},
		{"deleted, its pod was never bound", scene.On(scheduling, scene.Ending).Deleted(), "write Failed"},
		{"grace set to 0", written(scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.OwnGrace(time.Minute), scene.Ending).Deleted().Change(scene.Grace(0))), "kill"},
		{"grace shortened", written(scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.OwnGrace(time.Minute), scene.Ending).Deleted().Change(scene.Grace(59))), "hurry"},
		{"grace lengthened", written(scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.OwnGrace(time.Minute), scene.Ending).Deleted().Change(scene.Grace(61))), ""},
		{"grace was 0", written(scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.OwnGrace(0), scene.Ending).Deleted().Change(scene.Grace(0))), ""},
		{"its pod is deleted", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.Ending), "write Running"},
		{"its pod is deleted by force", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Halted), scene.Ending), "confirm"},
		{"its pod is deleted, the agent is away", written(scene.On(isRunning, scene.RunsSince(0), scene.Ending, scene.Renewed(time.Second))), "label"},

		{"node not heard of", scene.On(isRunning, scene.RunsSince(0), scene.Renewed(view.LeaseLimit)), "write Unknown"},
		{"node not heard of, pod deleted", scene.On(isRunning, scene.RunsSince(0), scene.Renewed(view.LeaseLimit), scene.Ending), "write Unknown"},
		{"node not heard of, deleted", written(scene.On(isRunning, scene.RunsSince(0), scene.Renewed(view.LeaseLimit), scene.Ending).Deleted()), ""},
		{"lease old, agent heard", scene.On(isRunning, scene.RunsSince(0), scene.Renewed(view.LeaseLimit), scene.Heard(scene.Running)), "write Running"},
		{"kubelet dead, agent heard", scene.On(isRunning, scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown), scene.Heard(scene.Running)), "write Unknown"},
		{"kubelet dead, VM ended", scene.On(isRunning, scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown), scene.Heard(scene.Halted)), "confirm"},
		{"node not ready, agent heard", scene.On(isRunning, scene.RunsSince(0), scene.Readiness(corev1.ConditionFalse), scene.Heard(scene.Running)), "write Running"},
		{"node not ready", scene.On(isRunning, scene.RunsSince(0), scene.Readiness(corev1.ConditionFalse)), "write Unknown"},
		{"tainted, but ready", scene.On(isRunning, scene.RunsSince(0), scene.OutOfService, scene.Heard(scene.Running)), "write Running"},
		{"out of service", scene.On(unknown, scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown), scene.OutOfService, scene.UnheardFor(view.HeardPatience)), "destroy"},
		{"node deleted", scene.On(unknown, scene.RunsSince(0), scene.NoNode), "destroy"},
		{"node deleted, its agent has the VM run", scene.On(isRunning, scene.RunsSince(0), scene.NoNode, scene.Heard(scene.Running)), "write Running"},
		{"node deleted, its agent has it ended", scene.On(isRunning, scene.RunsSince(0), scene.NoNode, scene.Heard(scene.Halted)), "confirm"},
		{"node deleted, its agent has not taken it up", scene.On(isRunning, scene.RunsSince(0), scene.NoNode, scene.Heard()), "confirm"},
		{"node deleted, its agent may come yet", scene.On(isRunning, scene.RunsSince(0), scene.NoNode, scene.UnheardFor(time.Second)), "write Unknown"},
		{"node deleted, its agent may come yet, written", written(scene.On(isRunning, scene.RunsSince(0), scene.NoNode, scene.UnheardFor(time.Second))), ""},
		{"out of service, its agent may come yet", written(scene.On(unknown, scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown), scene.OutOfService, scene.UnheardFor(time.Second))), ""},

		{"the kubelet has lost sight, the agent has it run", scene.On(isRunning, scene.LostSight, scene.Heard(scene.Running)), "write Unknown"},
		{"the same, written", written(scene.On(isRunning, scene.LostSight, scene.Heard(scene.Running))), ""},
		{"the same, deleted", written(scene.On(isRunning, scene.LostSight, scene.Heard(scene.Running), scene.Ending).Deleted()), "hurry"},
		{"the kubelet has lost sight, the agent is away", scene.On(isRunning, scene.LostSight, scene.Renewed(time.Second)), "write Unknown"},
		{"the kubelet has lost sight, the agent has no VM", scene.On(isRunning, scene.LostSight, scene.Heard()), "confirm"},
		{"the kubelet has lost sight, the agent has confirmed", scene.On(isRunning, scene.LostSight, scene.Promised), "write Failed"},
		{"the kubelet has the end, the agent not yet", scene.On(isRunning, scene.Exited(0, ""), scene.Heard(scene.Running)), "write Running"},
		{"the kubelet has the end, the agent never", scene.On(isRunning, scene.Exited(0, ""), scene.Heard(scene.Running), scene.FinishedAgo(time.Hour)), "write Unknown"},
		{"node back", scene.On(unknown, scene.RunsSince(0), scene.Heard(scene.Running)).RecordedAs(isRunning).Change(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = unknown }), "write Running"},
		{"pending again after a restart of nothing", scene.New().RecordedAs(pending), "create"},
		{"scheduled, no pod", scene.New().RecordedAs(scheduled), "write Failed"},
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
	s := scene.On(kubevirtv1.PhaseUnknown, scene.RunsSince(0), scene.NoNode, scene.Ending)
	s.Pod.DeletionGracePeriodSeconds = &none
	first, _ := decide(s.View)
	if w, is := first.(action.WriteStatus); !is || w.Status.Phase != kubevirtv1.PhaseFailed {
		t.Errorf("first %v", first)
	}
	if then, _ := decide(written(s).View); !action.Is[action.ReleasePod](then) {
		t.Errorf("then %v", then)
	}
}

// TestWakes: nothing is looked at again for no reason, and what comes with time is.
func TestWakes(t *testing.T) {
	for _, test := range []struct {
		name string
		in   scene.Scene
		want time.Duration
	}{
		{"unscheduled", written(scene.New().WithPod()), 0},
		{"container runs", written(scene.On(kubevirtv1.PhaseScheduling, scene.RunsSince(2*time.Second), scene.Heard())), 3 * time.Second},
		{"runs", written(scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.Heard(scene.Running))), 0},
		{"agent away", written(scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.Renewed(10*time.Second))), 30 * time.Second},
		{"silent", written(scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.Renewed(time.Hour))), view.LeaseLimit},
		{"claim being filled", written(scene.New().Change(scene.OnClaim).WithClaim("ImportInProgress")), fillingAgain},
		{"no claim", written(scene.New().Change(scene.OnClaim)), 0},
		{"ended", written(scene.On(kubevirtv1.PhaseRunning, scene.Exited(0, ""))), 0},
		{"node deleted, its agent may come yet", written(scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.NoNode, scene.UnheardFor(20*time.Second))), 40 * time.Second},
		{"gone, node deleted, its agent may come yet", scene.Scene{View: &view.View{Now: scene.Time}}.WithOther(scene.RunsSince(0), scene.NoNode, scene.UnheardFor(20*time.Second)), 40 * time.Second},
		{"ended, and the agent has it run", written(scene.On(kubevirtv1.PhaseRunning, scene.Exited(0, ""), scene.Heard(scene.Running))), phase.DisputePatience},
		{"pod vanished", written(scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.Gone, scene.Bound, scene.Heard(scene.Running))), confirmAgain},
		{"not taken up", written(scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(20*time.Second), scene.Heard())), 40 * time.Second},
		{"not taken up for long", written(scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Hour), scene.Heard())), 0},
	} {
		if got := nextLook(test.in.View); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
