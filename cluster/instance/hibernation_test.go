package instance

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
)

// TestDecideSaves: the next action for a VM that is to end saved, when its status says what is so.
func TestDecideSaves(t *testing.T) {
	for _, c := range []struct {
		name string
		in   scene.Scene
		want string
	}{
		{"mounted", scene.Saving(true, scene.Runs(scene.Running)), "save"},
		{"mounted, paused", scene.Saving(true, scene.Runs(scene.Paused)), "save"},
		{"mounted, another save is undone", scene.Saving(true, scene.Runs(scene.SavesV)), ""},
		{"mounted, agent away", scene.Saving(true, scene.RunsSince(time.Hour)), ""},
		{"mounted, node silent", scene.Saving(true, scene.Runs(scene.Running), scene.Readiness(corev1.ConditionUnknown)), ""},
		{"mounted by another container", scene.Saving(true, scene.Runs(scene.Running), scene.MountedBy("sidecar", contract.HibernationFolder)), "attach"},
		{"mounted elsewhere", scene.Saving(true, scene.Runs(scene.Running), scene.MountedBy(contract.ContainerCompute, "/data")), "attach"},
		{"mounted, shuts down", scene.Saving(true, scene.Runs(scene.Stopping)), ""},
		{"mounted, on a block disk", scene.OnBlock(scene.Saving(true, scene.Runs(scene.Running))), "save"},
		{"mounted, pod is being deleted", scene.Saving(true, scene.Runs(scene.Running), scene.Ending), ""},
		{"mounted, deleted", scene.Saving(true, scene.Runs(scene.Running)).Deleted(), "delete"},
		{"mounted, queued", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.QueuedBehind(3)), ""},
		{"mounted, being saved", scene.Saving(true, scene.Runs(scene.SavesV)).Called(), ""},
		{"mounted, nobody wants it", scene.Unasked(scene.Saving(true, scene.Runs(scene.Running))), ""},
		{"saved just now", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.DoneAgo(time.Second)), ""},
		{"saved, and goes on for long", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.DoneAgo(save.EndsWithin + 2*time.Second)), "save"},
		{"failed just now", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(time.Second, 1, scene.ErrSave)), ""},
		{"failed a while ago", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(save.FirstTry+2*time.Second, 1, scene.ErrSave)), "save"},
		{"failed often, a while ago", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(save.FirstTry+2*time.Second, 2, scene.ErrSave)), ""},
		{"failed, agent away", scene.Saving(true, scene.RunsSince(time.Hour)).Called(scene.FailedAgo(time.Hour, 1, scene.ErrSave)), ""},
		{"cancelled", scene.Unasked(scene.Saving(true, scene.Runs(scene.SavesV))).Called(), "cancel"},
		{"cancelled, cut off just now", scene.Unasked(scene.Saving(true, scene.Runs(scene.Running))).Called(scene.Cancelled, scene.FailedAgo(time.Second, 1, scene.ErrLost), scene.Unsure), ""},
		{"cancelled, cut off a while ago", scene.Unasked(scene.Saving(true, scene.Runs(scene.Running))).Called(scene.Cancelled, scene.FailedAgo(save.FirstTry, 1, scene.ErrLost), scene.Unsure), "cancel"},
		{"cancelled, known", scene.Unasked(scene.Saving(true, scene.Runs(scene.SavesV))).Called(scene.Cancelled), ""},
		{"deleted while it is saved", scene.Saving(true, scene.Runs(scene.SavesV)).Deleted().Called(), "cancel"},
		{"its pod is deleted while it is saved", scene.Saving(true, scene.Runs(scene.SavesV), scene.Ending).Called(), ""},
		{"to suspend while it is saved", scene.ToSuspend(scene.Saving(true, scene.Runs(scene.SavesV))).Called(), "cancel"},
		{"call of an earlier pod", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.OfAnotherPod), "cancel"},
		{"ended, its call not forgotten", written(scene.Saving(true, scene.Exited(0, ""))).Called(scene.DoneAgo(0)), "cancel"},
		{"ended, its call cut off just now", written(scene.Saving(true, scene.Exited(0, ""))).Called(scene.FailedAgo(0, 1, scene.ErrLost), scene.Unsure), "cancel"},
		{"gone, its call not forgotten", scene.Scene{View: &view.View{Now: scene.Time, Call: new(saves.Call)}}, "cancel"},

		{"not mounted", scene.Saving(false, scene.Runs(scene.Running)), "attach"},
		{"not mounted, its pod is deleted", scene.Saving(false, scene.Runs(scene.Running), scene.Ending), ""},
		{"not mounted, a block claim", scene.OfBlock(scene.Saving(false, scene.Runs(scene.Running))), ""},
		{"no claim", scene.NoClaim(scene.Saving(false, scene.Runs(scene.Running))), ""},
		{"not mounted, refused", scene.TheAPISaysNo(scene.Saving(false, scene.Runs(scene.Running))), ""},
		{"being attached", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed), ""},
		{"attached elsewhere", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Elsewhere), ""},
		{"attached", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving), "save"},
		{"attached, its pod goes", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving, scene.OnItsWay), ""},
		{"attached, evicted", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "detach"},
		{"attached, ended by itself", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "detach"},
		{"attached, cancelled, its pod goes", scene.Unasked(scene.Saving(false, scene.Runs(scene.Running))).AttachedBy(scene.Serving, scene.OnItsWay), ""},
		{"attached, ended while it was saved", scene.Saving(false, scene.Exited(0, ""), scene.Heard(scene.SavesV)).AttachedBy(scene.Serving), ""},
		{"attached, ended while it was saved, by the agent's report, too", scene.Saving(false, scene.Exited(0, ""), scene.Heard(scene.Halted)).AttachedBy(scene.Serving), "detach"},
		{"another claim attached", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving).Change(scene.OnMemory("next")), "detach"},
		{"attached, cancelled", scene.Unasked(scene.Saving(false, scene.Runs(scene.Running))).AttachedBy(scene.Serving), "detach"},
		{"attached, cancelled, written to", scene.Unasked(scene.Saving(false, scene.Runs(scene.SavesV))).AttachedBy(scene.Serving).Called(scene.Cancelled), ""},
		{"attached, cancelled, being undone", scene.Unasked(scene.Saving(false, scene.Runs(scene.SavesV))).AttachedBy(scene.Serving), ""},
		{"attached, ended", scene.Saving(false, scene.Exited(0, "")).AttachedBy(scene.Serving), "detach"},
		{"attached, suspends", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).AttachedBy(scene.Serving), "save"},

		{"to suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))), "save"},
		{"to suspend, on a block disk", scene.ToSuspend(scene.OnBlock(scene.Saving(false, scene.Runs(scene.Running)))), "save"},
		{"suspends", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.DoneAgo(time.Minute)), ""},
		{"can't suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(time.Minute, 1, status.Error(codes.FailedPrecondition, "no"))), ""},
		{"could not suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(time.Minute, 1, scene.ErrSave)), "save"},
	} {
		in := c.in
		if in.Instance != nil && in.Instance.DeletionTimestamp == nil {
			in = written(in)
		}
		next, _ := decide(in.View)
		if action.Is[action.LabelInstance](next) || action.Is[action.RelabelPod](next) { // they come last
			next = nil
		}
		if got := nameOf(next); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestRequests: the agent is asked for the directory that the status has, in the volume as the pod
// has it.
func TestRequests(t *testing.T) {
	name := "restore-web-20260102T030405Z"
	for _, c := range []struct {
		name string
		in   scene.Scene
		want saves.Request
	}{
		{"mounted", scene.Saving(true, scene.Runs(scene.Running)), saves.Request{Directory: contract.HibernationFolder + "/" + name}},
		{"attached", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving), saves.Request{Directory: name, Attachment: "hp-1"}},
		{"suspends", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))), saves.Request{}},
		{"on a block disk", scene.OnBlock(scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving)), saves.Request{Directory: name, Attachment: "hp-1", Watched: []string{"pg"}}},
		{"on a block disk as its status has it", scene.Forgotten(scene.OnBlock(scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving))), saves.Request{Directory: name, Attachment: "hp-1", Watched: []string{"pg"}}},
		{"suspends on a block disk", scene.ToSuspend(scene.OnBlock(scene.Saving(false, scene.Runs(scene.Running)))), saves.Request{}},
	} {
		next, _ := decide(written(c.in).View)
		c.want.Pod, c.want.UID, c.want.Node = c.in.Pod.Name, c.in.Pod.UID, "node-a"
		if c.want.Directory != "" {
			c.want.Instance = c.in.Instance.UID
		}
		if got, is := next.(action.Save); !is || !reflect.DeepEqual(got.Request, c.want) {
			t.Errorf("%s: %v %+v, want %+v", c.name, next, got.Request, c.want)
		}
	}
}

// TestTargets: the status has where a guest may be saved to, from before the call until it is known
// to go on.
func TestTargets(t *testing.T) {
	const now = "restore-web-20260102T030405Z"
	recorded := func(s scene.Scene) scene.Scene {
		s.Instance.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "hibernate-memory", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: "memory", TargetFileName: scene.Directory}}}
		return s
	}
	for _, c := range []struct {
		name string
		in   scene.Scene
		want string
	}{
		{"first", scene.Saving(true, scene.Runs(scene.Running)), now},
		{"agent away", scene.Saving(true, scene.RunsSince(time.Hour)), ""},
		{"agent lost", recorded(scene.Saving(true, scene.RunsSince(time.Hour))), scene.Directory},
		{"a leader before", recorded(scene.Saving(true, scene.Runs(scene.Running))), now},
		{"being saved", scene.Saving(true, scene.Runs(scene.SavesV)).Called(), scene.Directory},
		{"failed", recorded(scene.Saving(true, scene.Runs(scene.Running))).Called(scene.FailedAgo(time.Second, 1, scene.ErrSave)), scene.Directory},
		{"failed, next try", recorded(scene.Saving(true, scene.Runs(scene.Running))).Called(scene.FailedAgo(time.Minute, 1, scene.ErrSave)), now},
		{"call of an earlier pod", recorded(scene.Saving(true, scene.Runs(scene.Running))).Called(scene.OfAnotherPod, scene.DoneAgo(time.Hour)), scene.Directory},
		{"to be attached again", recorded(scene.Saving(false, scene.Runs(scene.Running))), scene.Directory},
		{"saved to a later one", recorded(scene.Saving(true, scene.Runs(scene.Running))).Change(scene.OnMemory("next")).AttachedBy(scene.Serving, scene.OfClaim("next")), scene.Directory},
		{"being saved to a later one", recorded(scene.Saving(true, scene.Runs(scene.SavesV))).Change(scene.OnMemory("next")).Called(scene.ToDirectory("restore-web-20260102T040000Z")), scene.Directory},
		{"cancelled, being saved", scene.Unasked(recorded(scene.Saving(false, scene.Runs(scene.SavesV)).LeavesClaim())).Called(), scene.Directory},
		{"cancelled, not known", scene.Unasked(recorded(scene.Saving(false, scene.RunsSince(time.Hour)).LeavesClaim())), scene.Directory},
		{"cancelled, goes on", scene.Unasked(recorded(scene.Saving(false, scene.Runs(scene.Running)).LeavesClaim())), ""},
		{"cancelled, goes on, mounted", scene.Unasked(recorded(scene.Saving(true, scene.Runs(scene.Running)))), ""},
		{"cancelled, mounted, not known", scene.Unasked(recorded(scene.Saving(true, scene.RunsSince(time.Hour)))), scene.Directory},
		{"to suspend", scene.ToSuspend(scene.Saving(true, scene.Runs(scene.Running))), ""},
	} {
		if got := save.RecordedTarget(statusOf(c.in.View), "hibernate-memory"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestBegan: a save that waited for its turn is written to have begun when it did, first.
func TestBegan(t *testing.T) {
	waited := func(s scene.Scene) scene.Scene { return written(s.Called(scene.QueuedBehind(1))) }
	begun := func(c *saves.Call) { c.Begun = scene.Time.Add(-time.Minute) }
	for _, c := range []struct {
		name string
		in   scene.Scene
		want bool
	}{
		{"waits", waited(scene.Saving(true, scene.Runs(scene.Running))), false},
		{"begins", waited(scene.Saving(true, scene.Runs(scene.SavesV))).Called(begun), true},
		{"never waited", scene.Saving(true, scene.Runs(scene.SavesV)).Called(begun), false},
		{"tried again", written(waited(scene.Saving(true, scene.Runs(scene.SavesV))).Called(begun)).Called(scene.QueuedBehind(1)), true},
	} {
		var got *metav1.Time
		for _, s := range statusOf(c.in.View).VolumeStatus {
			got = s.HibernationInfo.StartTimestamp
		}
		if (got != nil) != c.want || got != nil && !got.Equal(new(metav1.NewTime(scene.Time.Add(-time.Minute)))) {
			t.Errorf("%s: %v, want that it began: %v", c.name, got, c.want)
		}
	}
}

// TestHibernating: what the condition says of a save.
func TestHibernating(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	noRoom := status.Error(codes.ResourceExhausted, "12 MiB free")
	for _, c := range []struct {
		name   string
		in     scene.Scene
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		{"nobody wants it", scene.Unasked(scene.Saving(true, scene.Runs(scene.Running))), "", "", ""},
		{"about to", scene.Saving(true, scene.Runs(scene.Running)), yes, condition.ReasonSaving, "to claim memory"},
		{"behind one", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.QueuedBehind(1)), yes, condition.ReasonQueued, "1 save is under way or waiting on node node-a before it"},
		{"behind two", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.QueuedBehind(2)), yes, condition.ReasonQueued, "2 saves are under way or waiting on node node-a before it"},
		{"behind its own", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.QueuedBehind(0), scene.Barred), yes, condition.ReasonQueued, "saves of other VMs of namespace shop on node node-a write nothing or take long"},
		{"under way", scene.Saving(true, scene.Runs(scene.SavesV)).Called(), yes, condition.ReasonSaving, "to claim memory"},
		{"hangs", scene.Saving(true, scene.Runs(scene.SavesV)).Called(scene.Aside), yes, condition.ReasonSaving, "other VMs of node node-a no longer wait for it"},
		{"done", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.DoneAgo(time.Second)), yes, condition.ReasonSaving, "to claim memory"},
		{"failed", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(0, 1, scene.ErrSave)), no, condition.ReasonSaveFailed, "QEMU said no; it is tried again"},
		{"no room", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(0, 1, noRoom)), no, condition.ReasonNoSpace, "claim memory has no room for the guest's memory, and the guest goes on: 12 MiB free"},
		{"agent lost", scene.Saving(true, scene.RunsSince(time.Hour)).Called(scene.FailedAgo(0, 1, scene.ErrLost)), yes, condition.ReasonWaiting, "agent on node node-a is not heard"},
		{"agent lost and back", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(0, 1, scene.ErrLost)), no, condition.ReasonSaveFailed, "save on node node-a was cut off"},
		{"agent lost and not asked", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(0, 1, scene.ErrLost), scene.Unsure), yes, condition.ReasonWaiting, "is being undone"},
		{"agent lost and not asked for long", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(save.FirstTry, 1, scene.ErrLost), scene.Unsure), no, condition.ReasonSaveFailed, "was cut off"},
		{"being cancelled", scene.Unasked(scene.Saving(true, scene.Runs(scene.SavesV))).Called(scene.Cancelled), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, cut off", scene.Unasked(scene.Saving(true, scene.Runs(scene.Running))).Called(scene.Cancelled, scene.FailedAgo(0, 1, scene.ErrLost), scene.Unsure), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, agent away", scene.Unasked(scene.ToTarget(scene.Saving(true, scene.RunsSince(time.Hour)))), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, by a leader before", scene.Unasked(scene.ToTarget(scene.Saving(true, scene.Runs(scene.SavesV)))), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, goes on", scene.Unasked(scene.ToTarget(scene.Saving(true, scene.Runs(scene.Running)))), "", "", ""},
		{"cancelled, shuts down", scene.Unasked(scene.ToTarget(scene.Saving(true, scene.Runs(scene.Stopping)))), "", "", ""},
		{"never to be saved, agent away", scene.Unasked(scene.Saving(true, scene.RunsSince(time.Hour))), "", "", ""},
		{"resumed, agent away", written(scene.Resumed(scene.RunsSince(time.Hour)).RecordedAs(kubevirtv1.PhaseRunning)), "", "", ""},
		{"resumed, saved elsewhere, agent away", scene.SavedSince("memory", "restore-web-20260102T040000Z"), yes, condition.ReasonCancelling, "not known yet"},
		{"resumed, saved to another claim, agent away", scene.SavedSince("next", scene.Directory), yes, condition.ReasonCancelling, "not known yet"},
		{"attached and never saved, agent away", scene.Unasked(scene.ToNothing(scene.Saving(true, scene.RunsSince(time.Hour)))), "", "", ""},
		{"refused by the node", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(0, 1, status.Error(codes.FailedPrecondition, "no"))), no, condition.ReasonSaveFailed, "no; it is tried again"},
		{"deleted, under way", scene.Saving(true, scene.Runs(scene.SavesV)).Deleted().Called(scene.Cancelled), yes, condition.ReasonCancelling, "not known yet"},
		{"next try", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(time.Minute, 1, scene.ErrSave)), yes, condition.ReasonSaving, "to claim memory"},
		{"agent away", scene.Saving(true, scene.RunsSince(time.Hour)), yes, condition.ReasonWaiting, "agent on node node-a is not heard"},
		{"another's save", scene.Saving(true, scene.Runs(scene.SavesV)), yes, condition.ReasonWaiting, "is being undone"},
		{"deleted", scene.Saving(true, scene.Runs(scene.Running)).Deleted(), no, condition.ReasonNotSaved, "being deleted"},
		{"pod deleted", scene.Saving(true, scene.Runs(scene.Running), scene.Ending), no, condition.ReasonNotSaved, "pod is being deleted"},
		{"pod deleted, under way", scene.Saving(true, scene.Runs(scene.SavesV), scene.Ending).Called(), yes, condition.ReasonSaving, "to claim memory"},
		{"not started", scene.New().Change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave)).WithPod(scene.Bound).RecordedAs(kubevirtv1.PhaseScheduling), yes, condition.ReasonWaiting, "has not started yet"},
		{"silent", scene.Saving(true, scene.RunsSince(time.Hour), scene.Readiness(corev1.ConditionUnknown)), yes, condition.ReasonWaiting, "it is not known whether the guest runs"},
		{"shut down", scene.Saving(true, scene.Exited(0, "")), no, condition.ReasonNotSaved, "ended before it was saved: the guest shut down"},
		{"saved", scene.ToTarget(scene.Saving(true, scene.Exited(0, scene.SavedTo(scene.Image, contract.HibernationFolder+"/"+scene.Directory)))), no, condition.ReasonSaved, "saved to claim memory"},

		{"no volume", scene.Saving(false, scene.Runs(scene.Running)).LeavesClaim(), no, condition.ReasonAttachFailed, "spec.utilityVolumes has no volume"},
		{"no claim", scene.NoClaim(scene.Saving(false, scene.Runs(scene.Running))), no, condition.ReasonAttachFailed, "there is no PersistentVolumeClaim memory"},
		{"refused", scene.TheAPISaysNo(scene.Saving(false, scene.Runs(scene.Running))), no, condition.ReasonAttachFailed, "quota"},
		{"to be attached", scene.Saving(false, scene.Runs(scene.Running)), yes, condition.ReasonAttaching, "claim memory is attached to the VM's pod on node node-a"},
		{"unscheduled for a moment", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Unplaceable), yes, condition.ReasonAttaching, ""},
		{"unscheduled", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Unplaceable, scene.Since(time.Minute)), no, condition.ReasonAttachFailed, "1 node has no room"},
		{"a block claim", scene.OfBlock(scene.Saving(false, scene.Runs(scene.Running))), no, condition.ReasonAttachFailed, "volumeMode Block"},
		{"its container is made", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Waits("ContainerCreating"), scene.Since(time.Minute)), yes, condition.ReasonAttaching, ""},
		{"its container does not start", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Waits("ImagePullBackOff"), scene.Since(time.Minute)), no, condition.ReasonAttachFailed, "ImagePullBackOff"},
		{"its events say why", scene.Troubled(scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed, scene.Since(time.Minute))), no, condition.ReasonAttachFailed, "no such volume"},
		{"attached", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving), yes, condition.ReasonSaving, "to claim memory"},

		{"to suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))), yes, condition.ReasonSuspending, "to suspend itself"},
		{"suspends", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.DoneAgo(0)), yes, condition.ReasonSuspending, "to suspend itself"},
		{"can't suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(0, 1, status.Error(codes.FailedPrecondition, "no agent"))), no, condition.ReasonCannotSuspend, "no agent; start qemu-guest-agent"},
		{"hardware can't", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(0, 1, status.Error(codes.FailedPrecondition, "vm a/virt-launcher-web-0a1b: machineType: no S4: use q35, or save the VM instead"))),
			no, condition.ReasonCannotSuspend, "goes on: spec.domain.machine.type: no S4: use q35, or set hibernateStrategy.mode: Save"},
		{"a node's words", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving).Called(scene.FailedAgo(0, 1, status.Error(codes.FailedPrecondition, "vm a/virt-launcher-web-0a1b: no room in /var/run/vmlet/hibernation (df)"))),
			no, condition.ReasonSaveFailed, "failed, and the guest goes on: no room in the claim for the guest's memory (df); it is tried again"},
		{"did not suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(0, 1, scene.ErrSave)), no, condition.ReasonSuspendFailed, "QEMU said no"},
		{"suspended", scene.ToSuspend(scene.Saving(false, scene.Exited(0, scene.EndedWith(contract.GuestSuspended, "it did")))), no, condition.ReasonSuspended, "suspended itself"},
	} {
		s := statusOf(c.in.View)
		got := condition.Find(s.Conditions, kubevirtv1.ConditionHibernationInProgress)
		if got == nil {
			got = &kubevirtv1.Condition{}
		}
		if got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %s %s %q, want %s %s %q", c.name, got.Status, got.Reason, got.Message, c.status, c.reason, c.says)
		}
	}
}

// TestUtilityVolumes: what the status says of the volume for the guest's memory.
func TestUtilityVolumes(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    scene.Scene
		phase string
		by    types.UID
	}{
		{"no pod", scene.New().Change(scene.OnMemory("memory")), volumePending, ""},
		{"mounted", scene.Saving(true, scene.Runs(scene.Running)), volumeReady, ""},
		{"mounted, not started", scene.Saving(true, scene.Bound), volumePending, ""},
		{"not attached", scene.Saving(false, scene.Runs(scene.Running)), volumePending, ""},
		{"made", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(), volumePending, "hp-1"},
		{"on the node", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed), volumeOnNode, "hp-1"},
		{"in the pod", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving), volumeInPod, "hp-1"},
		{"its pod goes", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving, scene.OnItsWay), volumePending, ""},
	} {
		all := statusOf(c.in.View).VolumeStatus
		if len(all) != 1 {
			t.Fatalf("%s: %+v", c.name, all)
		}
		by := types.UID("")
		if all[0].HotplugVolume != nil {
			by = all[0].HotplugVolume.AttachPodUID
		}
		if all[0].Name != "hibernate-memory" || all[0].Phase != c.phase || by != c.by {
			t.Errorf("%s: %+v attached by %q, want %s by %q", c.name, all[0], by, c.phase, c.by)
		}
	}
	s := statusOf(scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Unplaceable, scene.Since(time.Minute)).View)
	if got := s.VolumeStatus[0]; got.Reason != condition.ReasonAttachFailed || !strings.Contains(got.Message, "1 node has no room") {
		t.Errorf("it says %s %q", got.Reason, got.Message)
	}
	if got := statusOf(scene.NoClaim(scene.Unasked(scene.Saving(false, scene.Runs(scene.Running)))).View).VolumeStatus[0]; got.Reason != "" {
		t.Errorf("of a claim that nobody wants to be attached it says %s %q", got.Reason, got.Message)
	}
	if got := statusOf(scene.Resumed(scene.Bound).Change(scene.OnMemory("next")).View).VolumeStatus; len(got) != 2 || got[1].HibernationInfo != nil {
		t.Errorf("of another claim of a guest that goes on: %+v", got)
	}
	for _, c := range []struct {
		name string
		in   scene.Scene
		want int
	}{
		{"it may be saved there", scene.Unasked(scene.ToTarget(scene.Saving(false, scene.RunsSince(time.Hour)).LeavesClaim())), 1},
		{"it goes on", scene.Unasked(scene.ToTarget(scene.Saving(false, scene.Runs(scene.Running)).LeavesClaim())), 0},
		{"it was never to be saved there", scene.Unasked(scene.ToNothing(scene.Saving(false, scene.Runs(scene.SavesV)).LeavesClaim())).Called(), 0},
	} {
		if got := statusOf(c.in.View).VolumeStatus; len(got) != c.want {
			t.Errorf("a volume that was taken away, %s: %+v, want %d", c.name, got, c.want)
		}
	}
	if got := statusOf(scene.Resumed(scene.Bound).View).VolumeStatus; len(got) != 1 || got[0].HibernationInfo.TargetFileName != scene.Directory {
		t.Errorf("of a guest that goes on: %+v", got)
	}
}

// TestSavingWakes: a try that is due is made though nothing else happens.
func TestSavingWakes(t *testing.T) {
	for _, c := range []struct {
		name string
		in   scene.Scene
		want time.Duration
	}{
		{"failed", scene.Saving(true, scene.Runs(scene.Running)).Called(scene.FailedAgo(4*time.Second, 1, scene.ErrSave)), 7 * time.Second},
		{"under way", scene.Saving(true, scene.Runs(scene.SavesV)).Called(), 0},
		{"being attached", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed, scene.Since(3*time.Second)), 7 * time.Second},
		{"being attached for long", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Placed, scene.Since(time.Minute)), trouble.QuietInterval},
		{"attached", scene.Saving(false, scene.Runs(scene.SavesV)).AttachedBy(scene.Serving).Called(), 0},
	} {
		if got := nextLook(written(c.in).View); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
