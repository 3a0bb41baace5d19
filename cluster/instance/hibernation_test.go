package instance

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/cluster/instance/action"
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
