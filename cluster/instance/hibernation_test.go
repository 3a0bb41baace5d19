package instance

import (
	"path"
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
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	paused = nodev1.State_STATE_PAUSED
	savesV = nodev1.State_STATE_SAVING

	testImage     = "00000000-0000-4000-8000-00000000000a"
	testDirectory = "restore-web-20260102T030400Z"
)

// saving is a VM that runs and is to be saved to the claim "memory", which its pod mounts from the
// start if mounted.
func saving(mounted bool, change ...func(*view.Pod)) scene {
	s := newScene().change(onMemory("memory"), stopBy(kubevirtv1.HibernateSave))
	if mounted {
		s = s.withPod(change...)
	} else {
		volumes := s.Instance.Spec.UtilityVolumes
		s.Instance.Spec.UtilityVolumes = nil
		s = s.withPod(change...)
		s.Instance.Spec.UtilityVolumes = volumes
	}
	s.Claims["memory"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "memory"}}
	return s.recordedAs(kubevirtv1.PhaseRunning)
}

// runs is a pod whose guest is in a state by its agent's report.
func runs(state nodev1.State) func(*view.Pod) {
	return func(p *view.Pod) {
		runsSince(time.Hour)(p)
		heard(state)(p)
	}
}

// called has a call be known.
func (s scene) called(change ...func(*saves.Call)) scene {
	s.Call = &saves.Call{State: saves.Running, Request: saves.Request{
		Pod: s.Pod.Name, UID: s.Pod.UID, Node: s.Pod.Spec.NodeName, Directory: path.Join(contract.HibernationFolder, testDirectory),
	}}
	for _, f := range change {
		f(s.Call)
	}
	return s
}

func toDirectory(name string) func(*saves.Call) {
	return func(c *saves.Call) { c.Directory = name }
}

func queuedBehind(n int) func(*saves.Call) {
	return func(c *saves.Call) { c.State, c.Ahead = saves.Queued, n }
}

func barred(c *saves.Call) { c.Barred = true }

func aside(c *saves.Call) { c.Aside = true }

func failedAgo(ago time.Duration, failures int, err error) func(*saves.Call) {
	return func(c *saves.Call) { c.State, c.Err, c.Failures, c.At = saves.Ended, err, failures, testTime.Add(-ago) }
}

func doneAgo(ago time.Duration) func(*saves.Call) {
	return func(c *saves.Call) { c.State, c.At = saves.Ended, testTime.Add(-ago) }
}

func unsure(c *saves.Call) { c.Unsure = true }

func cancelled(c *saves.Call) { c.Cancelled = true }

func suspending(c *saves.Call) { c.Directory = "" }

func ofAnotherPod(c *saves.Call) { c.UID = "another" }

func toSuspend(s scene) scene { return s.change(stopBy(kubevirtv1.HibernateSuspendToDisk)) }

func unasked(s scene) scene { return s.change(stopBy("")) }

func ofBlock(s scene) scene {
	s.Claims["memory"].Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	return s
}

func noClaim(s scene) scene { delete(s.Claims, "memory"); return s }

func theAPISaysNo(s scene) scene {
	s.Refused = &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "quota"}
	return s
}

func (s scene) leavesClaim() scene { s.Instance.Spec.UtilityVolumes = nil; return s }

// forgotten has the claim gone from the cache, while the status has it.
func forgotten(s scene) scene {
	block := corev1.PersistentVolumeBlock
	s.Instance.Status.VolumeStatus = append(s.Instance.Status.VolumeStatus, kubevirtv1.VolumeStatus{
		Name: "data", PersistentVolumeClaimInfo: &kubevirtv1.PersistentVolumeClaimInfo{ClaimName: "pg", VolumeMode: &block},
	})
	delete(s.Claims, "pg")
	return s
}

// onBlock has the guest have a disk on the claim "pg" with volumeMode Block.
func onBlock(s scene) scene {
	s.Instance.Spec.Domain.Devices.Disks = append(s.Instance.Spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: "data"})
	s.Instance.Spec.Volumes = append(s.Instance.Spec.Volumes, kubevirtv1.Volume{Name: "data", PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pg"},
	}})
	block := corev1.PersistentVolumeBlock
	s.Claims["pg"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "pg"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: &block}}
	return s
}

// attachedBy has a pod that attaches the claim "memory".
func (s scene) attachedBy(change ...func(*corev1.Pod)) scene {
	p := launcher.Attachment(s.Instance, s.Pod.Pod, "memory", configuration.Default())
	p.UID, p.CreationTimestamp = "hp-1", metav1.NewTime(testTime)
	for _, f := range change {
		f(p)
	}
	s.Attachments = append(s.Attachments, p)
	return s
}

// ofClaim has a pod attach another claim.
func ofClaim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				v.PersistentVolumeClaim.ClaimName = name
			}
		}
	}
}

func since(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(testTime.Add(-ago)) }
}

func placed(p *corev1.Pod) { p.Spec.NodeName = "node-a" }

func serving(p *corev1.Pod) {
	placed(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "attach", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func elsewhere(p *corev1.Pod) {
	serving(p)
	p.Spec.NodeName = "node-b"
}

func unplaceable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "1 node has no room"}}
}

// waits: its container does not start, for that reason.
func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		placed(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "attach", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

// mountedBy has the claim's mount be another container's, or at another path.
func mountedBy(container, at string) func(*view.Pod) {
	return func(p *view.Pod) {
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			for j := range c.VolumeMounts {
				if c.Name == contract.ContainerCompute && c.VolumeMounts[j].MountPath == contract.HibernationFolder {
					c.Name, c.VolumeMounts[j].MountPath = container, at
				}
			}
		}
	}
}

func onItsWay(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testTime} }

var errLost = status.Error(codes.Unavailable, "EOF")

var errSave = status.Error(codes.Internal, "QEMU said no")

// TestDecideSaves: the next action for a VM that is to end saved, when its status says what is so.
func TestDecideSaves(t *testing.T) {
	for _, c := range []struct {
		name string
		in   scene
		want string
	}{
		{"mounted", saving(true, runs(running)), "save"},
		{"mounted, paused", saving(true, runs(paused)), "save"},
		{"mounted, another save is undone", saving(true, runs(savesV)), ""},
		{"mounted, agent away", saving(true, runsSince(time.Hour)), ""},
		{"mounted, node silent", saving(true, runs(running), readiness(corev1.ConditionUnknown)), ""},
		{"mounted by another container", saving(true, runs(running), mountedBy("sidecar", contract.HibernationFolder)), "attach"},
		{"mounted elsewhere", saving(true, runs(running), mountedBy(contract.ContainerCompute, "/data")), "attach"},
		{"mounted, shuts down", saving(true, runs(stopping)), ""},
		{"mounted, on a block disk", onBlock(saving(true, runs(running))), "save"},
		{"mounted, pod is being deleted", saving(true, runs(running), ending), ""},
		{"mounted, deleted", saving(true, runs(running)).deleted(), "delete"},
		{"mounted, queued", saving(true, runs(running)).called(queuedBehind(3)), ""},
		{"mounted, being saved", saving(true, runs(savesV)).called(), ""},
		{"mounted, nobody wants it", unasked(saving(true, runs(running))), ""},
		{"saved just now", saving(true, runs(running)).called(doneAgo(time.Second)), ""},
		{"saved, and goes on for long", saving(true, runs(running)).called(doneAgo(endsWithin + 2*time.Second)), "save"},
		{"failed just now", saving(true, runs(running)).called(failedAgo(time.Second, 1, errSave)), ""},
		{"failed a while ago", saving(true, runs(running)).called(failedAgo(firstTry+2*time.Second, 1, errSave)), "save"},
		{"failed often, a while ago", saving(true, runs(running)).called(failedAgo(firstTry+2*time.Second, 2, errSave)), ""},
		{"failed, agent away", saving(true, runsSince(time.Hour)).called(failedAgo(time.Hour, 1, errSave)), ""},
		{"cancelled", unasked(saving(true, runs(savesV))).called(), "cancel"},
		{"cancelled, cut off just now", unasked(saving(true, runs(running))).called(cancelled, failedAgo(time.Second, 1, errLost), unsure), ""},
		{"cancelled, cut off a while ago", unasked(saving(true, runs(running))).called(cancelled, failedAgo(firstTry, 1, errLost), unsure), "cancel"},
		{"cancelled, known", unasked(saving(true, runs(savesV))).called(cancelled), ""},
		{"deleted while it is saved", saving(true, runs(savesV)).deleted().called(), "cancel"},
		{"its pod is deleted while it is saved", saving(true, runs(savesV), ending).called(), ""},
		{"to suspend while it is saved", toSuspend(saving(true, runs(savesV))).called(), "cancel"},
		{"call of an earlier pod", saving(true, runs(running)).called(ofAnotherPod), "cancel"},
		{"ended, its call not forgotten", written(saving(true, exited(0, ""))).called(doneAgo(0)), "cancel"},
		{"ended, its call cut off just now", written(saving(true, exited(0, ""))).called(failedAgo(0, 1, errLost), unsure), "cancel"},
		{"gone, its call not forgotten", scene{&view.View{Now: testTime, Call: new(saves.Call)}}, "cancel"},

		{"not mounted", saving(false, runs(running)), "attach"},
		{"not mounted, its pod is deleted", saving(false, runs(running), ending), ""},
		{"not mounted, a block claim", ofBlock(saving(false, runs(running))), ""},
		{"no claim", noClaim(saving(false, runs(running))), ""},
		{"not mounted, refused", theAPISaysNo(saving(false, runs(running))), ""},
		{"being attached", saving(false, runs(running)).attachedBy(placed), ""},
		{"attached elsewhere", saving(false, runs(running)).attachedBy(elsewhere), ""},
		{"attached", saving(false, runs(running)).attachedBy(serving), "save"},
		{"attached, its pod goes", saving(false, runs(running)).attachedBy(serving, onItsWay), ""},
		{"attached, evicted", saving(false, runs(running)).attachedBy(placed, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "detach"},
		{"attached, ended by itself", saving(false, runs(running)).attachedBy(placed, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "detach"},
		{"attached, cancelled, its pod goes", unasked(saving(false, runs(running))).attachedBy(serving, onItsWay), ""},
		{"attached, ended while it was saved", saving(false, exited(0, ""), heard(savesV)).attachedBy(serving), ""},
		{"attached, ended while it was saved, by the agent's report, too", saving(false, exited(0, ""), heard(halted)).attachedBy(serving), "detach"},
		{"another claim attached", saving(false, runs(running)).attachedBy(serving).change(onMemory("next")), "detach"},
		{"attached, cancelled", unasked(saving(false, runs(running))).attachedBy(serving), "detach"},
		{"attached, cancelled, written to", unasked(saving(false, runs(savesV))).attachedBy(serving).called(cancelled), ""},
		{"attached, cancelled, being undone", unasked(saving(false, runs(savesV))).attachedBy(serving), ""},
		{"attached, ended", saving(false, exited(0, "")).attachedBy(serving), "detach"},
		{"attached, suspends", toSuspend(saving(false, runs(running))).attachedBy(serving), "save"},

		{"to suspend", toSuspend(saving(false, runs(running))), "save"},
		{"to suspend, on a block disk", toSuspend(onBlock(saving(false, runs(running)))), "save"},
		{"suspends", toSuspend(saving(false, runs(running))).called(suspending, doneAgo(time.Minute)), ""},
		{"can't suspend", toSuspend(saving(false, runs(running))).called(suspending, failedAgo(time.Minute, 1, status.Error(codes.FailedPrecondition, "no"))), ""},
		{"could not suspend", toSuspend(saving(false, runs(running))).called(suspending, failedAgo(time.Minute, 1, errSave)), "save"},
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
		in   scene
		want saves.Request
	}{
		{"mounted", saving(true, runs(running)), saves.Request{Directory: contract.HibernationFolder + "/" + name}},
		{"attached", saving(false, runs(running)).attachedBy(serving), saves.Request{Directory: name, Attachment: "hp-1"}},
		{"suspends", toSuspend(saving(false, runs(running))), saves.Request{}},
		{"on a block disk", onBlock(saving(false, runs(running)).attachedBy(serving)), saves.Request{Directory: name, Attachment: "hp-1", Watched: []string{"pg"}}},
		{"on a block disk as its status has it", forgotten(onBlock(saving(false, runs(running)).attachedBy(serving))), saves.Request{Directory: name, Attachment: "hp-1", Watched: []string{"pg"}}},
		{"suspends on a block disk", toSuspend(onBlock(saving(false, runs(running)))), saves.Request{}},
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
	recorded := func(s scene) scene {
		s.Instance.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "hibernate-memory", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: "memory", TargetFileName: testDirectory}}}
		return s
	}
	for _, c := range []struct {
		name string
		in   scene
		want string
	}{
		{"first", saving(true, runs(running)), now},
		{"agent away", saving(true, runsSince(time.Hour)), ""},
		{"agent lost", recorded(saving(true, runsSince(time.Hour))), testDirectory},
		{"a leader before", recorded(saving(true, runs(running))), now},
		{"being saved", saving(true, runs(savesV)).called(), testDirectory},
		{"failed", recorded(saving(true, runs(running))).called(failedAgo(time.Second, 1, errSave)), testDirectory},
		{"failed, next try", recorded(saving(true, runs(running))).called(failedAgo(time.Minute, 1, errSave)), now},
		{"call of an earlier pod", recorded(saving(true, runs(running))).called(ofAnotherPod, doneAgo(time.Hour)), testDirectory},
		{"to be attached again", recorded(saving(false, runs(running))), testDirectory},
		{"saved to a later one", recorded(saving(true, runs(running))).change(onMemory("next")).attachedBy(serving, ofClaim("next")), testDirectory},
		{"being saved to a later one", recorded(saving(true, runs(savesV))).change(onMemory("next")).called(toDirectory("restore-web-20260102T040000Z")), testDirectory},
		{"cancelled, being saved", unasked(recorded(saving(false, runs(savesV)).leavesClaim())).called(), testDirectory},
		{"cancelled, not known", unasked(recorded(saving(false, runsSince(time.Hour)).leavesClaim())), testDirectory},
		{"cancelled, goes on", unasked(recorded(saving(false, runs(running)).leavesClaim())), ""},
		{"cancelled, goes on, mounted", unasked(recorded(saving(true, runs(running)))), ""},
		{"cancelled, mounted, not known", unasked(recorded(saving(true, runsSince(time.Hour)))), testDirectory},
		{"to suspend", toSuspend(saving(true, runs(running))), ""},
	} {
		if got := recordedTarget(statusOf(c.in.View), "hibernate-memory"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestBegan: a save that waited for its turn is written to have begun when it did, first.
func TestBegan(t *testing.T) {
	waited := func(s scene) scene { return written(s.called(queuedBehind(1))) }
	begun := func(c *saves.Call) { c.Begun = testTime.Add(-time.Minute) }
	for _, c := range []struct {
		name string
		in   scene
		want bool
	}{
		{"waits", waited(saving(true, runs(running))), false},
		{"begins", waited(saving(true, runs(savesV))).called(begun), true},
		{"never waited", saving(true, runs(savesV)).called(begun), false},
		{"tried again", written(waited(saving(true, runs(savesV))).called(begun)).called(queuedBehind(1)), true},
	} {
		var got *metav1.Time
		for _, s := range statusOf(c.in.View).VolumeStatus {
			got = s.HibernationInfo.StartTimestamp
		}
		if (got != nil) != c.want || got != nil && !got.Equal(new(metav1.NewTime(testTime.Add(-time.Minute)))) {
			t.Errorf("%s: %v, want that it began: %v", c.name, got, c.want)
		}
	}
}

// savedSince is a guest that went on from its image and may have been saved to another since.
func savedSince(claim, directory string) scene {
	s := resumed(runsSince(time.Hour)).recordedAs(kubevirtv1.PhaseRunning)
	s.Instance.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "hibernate-memory", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: claim, TargetFileName: directory}}}
	return s
}

// toNothing has the status name a claim and no directory.
func toNothing(s scene) scene {
	s = toTarget(s)
	s.Instance.Status.VolumeStatus[0].HibernationInfo.TargetFileName = ""
	return s
}

func troubled(s scene) scene {
	s.AttachTrouble = &condition.Fault{Reason: condition.ReasonFailedMount, Message: "no such volume"}
	return s
}

// TestHibernating: what the condition says of a save.
func TestHibernating(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	noRoom := status.Error(codes.ResourceExhausted, "12 MiB free")
	for _, c := range []struct {
		name   string
		in     scene
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		{"nobody wants it", unasked(saving(true, runs(running))), "", "", ""},
		{"about to", saving(true, runs(running)), yes, condition.ReasonSaving, "to claim memory"},
		{"behind one", saving(true, runs(running)).called(queuedBehind(1)), yes, condition.ReasonQueued, "1 save is under way or waiting on node node-a before it"},
		{"behind two", saving(true, runs(running)).called(queuedBehind(2)), yes, condition.ReasonQueued, "2 saves are under way or waiting on node node-a before it"},
		{"behind its own", saving(true, runs(running)).called(queuedBehind(0), barred), yes, condition.ReasonQueued, "saves of other VMs of namespace shop on node node-a write nothing or take long"},
		{"under way", saving(true, runs(savesV)).called(), yes, condition.ReasonSaving, "to claim memory"},
		{"hangs", saving(true, runs(savesV)).called(aside), yes, condition.ReasonSaving, "other VMs of node node-a no longer wait for it"},
		{"done", saving(true, runs(running)).called(doneAgo(time.Second)), yes, condition.ReasonSaving, "to claim memory"},
		{"failed", saving(true, runs(running)).called(failedAgo(0, 1, errSave)), no, condition.ReasonSaveFailed, "QEMU said no; it is tried again"},
		{"no room", saving(true, runs(running)).called(failedAgo(0, 1, noRoom)), no, condition.ReasonNoSpace, "claim memory has no room for the guest's memory, and the guest goes on: 12 MiB free"},
		{"agent lost", saving(true, runsSince(time.Hour)).called(failedAgo(0, 1, errLost)), yes, condition.ReasonWaiting, "agent on node node-a is not heard"},
		{"agent lost and back", saving(true, runs(running)).called(failedAgo(0, 1, errLost)), no, condition.ReasonSaveFailed, "save on node node-a was cut off"},
		{"agent lost and not asked", saving(true, runs(running)).called(failedAgo(0, 1, errLost), unsure), yes, condition.ReasonWaiting, "is being undone"},
		{"agent lost and not asked for long", saving(true, runs(running)).called(failedAgo(firstTry, 1, errLost), unsure), no, condition.ReasonSaveFailed, "was cut off"},
		{"being cancelled", unasked(saving(true, runs(savesV))).called(cancelled), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, cut off", unasked(saving(true, runs(running))).called(cancelled, failedAgo(0, 1, errLost), unsure), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, agent away", unasked(toTarget(saving(true, runsSince(time.Hour)))), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, by a leader before", unasked(toTarget(saving(true, runs(savesV)))), yes, condition.ReasonCancelling, "not known yet"},
		{"cancelled, goes on", unasked(toTarget(saving(true, runs(running)))), "", "", ""},
		{"cancelled, shuts down", unasked(toTarget(saving(true, runs(stopping)))), "", "", ""},
		{"never to be saved, agent away", unasked(saving(true, runsSince(time.Hour))), "", "", ""},
		{"resumed, agent away", written(resumed(runsSince(time.Hour)).recordedAs(kubevirtv1.PhaseRunning)), "", "", ""},
		{"resumed, saved elsewhere, agent away", savedSince("memory", "restore-web-20260102T040000Z"), yes, condition.ReasonCancelling, "not known yet"},
		{"resumed, saved to another claim, agent away", savedSince("next", testDirectory), yes, condition.ReasonCancelling, "not known yet"},
		{"attached and never saved, agent away", unasked(toNothing(saving(true, runsSince(time.Hour)))), "", "", ""},
		{"refused by the node", saving(true, runs(running)).called(failedAgo(0, 1, status.Error(codes.FailedPrecondition, "no"))), no, condition.ReasonSaveFailed, "no; it is tried again"},
		{"deleted, under way", saving(true, runs(savesV)).deleted().called(cancelled), yes, condition.ReasonCancelling, "not known yet"},
		{"next try", saving(true, runs(running)).called(failedAgo(time.Minute, 1, errSave)), yes, condition.ReasonSaving, "to claim memory"},
		{"agent away", saving(true, runsSince(time.Hour)), yes, condition.ReasonWaiting, "agent on node node-a is not heard"},
		{"another's save", saving(true, runs(savesV)), yes, condition.ReasonWaiting, "is being undone"},
		{"deleted", saving(true, runs(running)).deleted(), no, condition.ReasonNotSaved, "being deleted"},
		{"pod deleted", saving(true, runs(running), ending), no, condition.ReasonNotSaved, "pod is being deleted"},
		{"pod deleted, under way", saving(true, runs(savesV), ending).called(), yes, condition.ReasonSaving, "to claim memory"},
		{"not started", newScene().change(onMemory("memory"), stopBy(kubevirtv1.HibernateSave)).withPod(bound).recordedAs(kubevirtv1.PhaseScheduling), yes, condition.ReasonWaiting, "has not started yet"},
		{"silent", saving(true, runsSince(time.Hour), readiness(corev1.ConditionUnknown)), yes, condition.ReasonWaiting, "it is not known whether the guest runs"},
		{"shut down", saving(true, exited(0, "")), no, condition.ReasonNotSaved, "ended before it was saved: the guest shut down"},
		{"saved", toTarget(saving(true, exited(0, savedTo(testImage, contract.HibernationFolder+"/"+testDirectory)))), no, condition.ReasonSaved, "saved to claim memory"},

		{"no volume", saving(false, runs(running)).leavesClaim(), no, condition.ReasonAttachFailed, "spec.utilityVolumes has no volume"},
		{"no claim", noClaim(saving(false, runs(running))), no, condition.ReasonAttachFailed, "there is no PersistentVolumeClaim memory"},
		{"refused", theAPISaysNo(saving(false, runs(running))), no, condition.ReasonAttachFailed, "quota"},
		{"to be attached", saving(false, runs(running)), yes, condition.ReasonAttaching, "claim memory is attached to the VM's pod on node node-a"},
		{"unscheduled for a moment", saving(false, runs(running)).attachedBy(unplaceable), yes, condition.ReasonAttaching, ""},
		{"unscheduled", saving(false, runs(running)).attachedBy(unplaceable, since(time.Minute)), no, condition.ReasonAttachFailed, "1 node has no room"},
		{"a block claim", ofBlock(saving(false, runs(running))), no, condition.ReasonAttachFailed, "volumeMode Block"},
		{"its container is made", saving(false, runs(running)).attachedBy(waits("ContainerCreating"), since(time.Minute)), yes, condition.ReasonAttaching, ""},
		{"its container does not start", saving(false, runs(running)).attachedBy(waits("ImagePullBackOff"), since(time.Minute)), no, condition.ReasonAttachFailed, "ImagePullBackOff"},
		{"its events say why", troubled(saving(false, runs(running)).attachedBy(placed, since(time.Minute))), no, condition.ReasonAttachFailed, "no such volume"},
		{"attached", saving(false, runs(running)).attachedBy(serving), yes, condition.ReasonSaving, "to claim memory"},

		{"to suspend", toSuspend(saving(false, runs(running))), yes, condition.ReasonSuspending, "to suspend itself"},
		{"suspends", toSuspend(saving(false, runs(running))).called(suspending, doneAgo(0)), yes, condition.ReasonSuspending, "to suspend itself"},
		{"can't suspend", toSuspend(saving(false, runs(running))).called(suspending, failedAgo(0, 1, status.Error(codes.FailedPrecondition, "no agent"))), no, condition.ReasonCannotSuspend, "no agent; start qemu-guest-agent"},
		{"hardware can't", toSuspend(saving(false, runs(running))).called(suspending, failedAgo(0, 1, status.Error(codes.FailedPrecondition, "vm a/virt-launcher-web-0a1b: machineType: no S4: use q35, or save the VM instead"))),
			no, condition.ReasonCannotSuspend, "goes on: spec.domain.machine.type: no S4: use q35, or set hibernateStrategy.mode: Save"},
		{"a node's words", saving(false, runs(running)).attachedBy(serving).called(failedAgo(0, 1, status.Error(codes.FailedPrecondition, "vm a/virt-launcher-web-0a1b: no room in /var/run/vmlet/hibernation (df)"))),
			no, condition.ReasonSaveFailed, "failed, and the guest goes on: no room in the claim for the guest's memory (df); it is tried again"},
		{"did not suspend", toSuspend(saving(false, runs(running))).called(suspending, failedAgo(0, 1, errSave)), no, condition.ReasonSuspendFailed, "QEMU said no"},
		{"suspended", toSuspend(saving(false, exited(0, endedWith(contract.GuestSuspended, "it did")))), no, condition.ReasonSuspended, "suspended itself"},
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

// TestTryAgain: twice as long after each failure, and five minutes at most.
func TestTryAgain(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 6: 5 * time.Minute, 1000: 5 * time.Minute} {
		c := saves.Call{State: saves.Ended, Err: errSave, Failures: failures, At: testTime}
		c.Directory = "x"
		if got := tryAgain(&c).Sub(testTime); got < want || got > want+time.Second {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}

// TestUtilityVolumes: what the status says of the volume for the guest's memory.
func TestUtilityVolumes(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    scene
		phase string
		by    types.UID
	}{
		{"no pod", newScene().change(onMemory("memory")), volumePending, ""},
		{"mounted", saving(true, runs(running)), volumeReady, ""},
		{"mounted, not started", saving(true, bound), volumePending, ""},
		{"not attached", saving(false, runs(running)), volumePending, ""},
		{"made", saving(false, runs(running)).attachedBy(), volumePending, "hp-1"},
		{"on the node", saving(false, runs(running)).attachedBy(placed), volumeOnNode, "hp-1"},
		{"in the pod", saving(false, runs(running)).attachedBy(serving), volumeInPod, "hp-1"},
		{"its pod goes", saving(false, runs(running)).attachedBy(serving, onItsWay), volumePending, ""},
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
	s := statusOf(saving(false, runs(running)).attachedBy(unplaceable, since(time.Minute)).View)
	if got := s.VolumeStatus[0]; got.Reason != condition.ReasonAttachFailed || !strings.Contains(got.Message, "1 node has no room") {
		t.Errorf("it says %s %q", got.Reason, got.Message)
	}
	if got := statusOf(noClaim(unasked(saving(false, runs(running)))).View).VolumeStatus[0]; got.Reason != "" {
		t.Errorf("of a claim that nobody wants to be attached it says %s %q", got.Reason, got.Message)
	}
	if got := statusOf(resumed(bound).change(onMemory("next")).View).VolumeStatus; len(got) != 2 || got[1].HibernationInfo != nil {
		t.Errorf("of another claim of a guest that goes on: %+v", got)
	}
	for _, c := range []struct {
		name string
		in   scene
		want int
	}{
		{"it may be saved there", unasked(toTarget(saving(false, runsSince(time.Hour)).leavesClaim())), 1},
		{"it goes on", unasked(toTarget(saving(false, runs(running)).leavesClaim())), 0},
		{"it was never to be saved there", unasked(toNothing(saving(false, runs(savesV)).leavesClaim())).called(), 0},
	} {
		if got := statusOf(c.in.View).VolumeStatus; len(got) != c.want {
			t.Errorf("a volume that was taken away, %s: %+v, want %d", c.name, got, c.want)
		}
	}
	if got := statusOf(resumed(bound).View).VolumeStatus; len(got) != 1 || got[0].HibernationInfo.TargetFileName != testDirectory {
		t.Errorf("of a guest that goes on: %+v", got)
	}
}

// TestSavingWakes: a try that is due is made though nothing else happens.
func TestSavingWakes(t *testing.T) {
	for _, c := range []struct {
		name string
		in   scene
		want time.Duration
	}{
		{"failed", saving(true, runs(running)).called(failedAgo(4*time.Second, 1, errSave)), 7 * time.Second},
		{"under way", saving(true, runs(savesV)).called(), 0},
		{"being attached", saving(false, runs(running)).attachedBy(placed, since(3*time.Second)), 7 * time.Second},
		{"being attached for long", saving(false, runs(running)).attachedBy(placed, since(time.Minute)), quietInterval},
		{"attached", saving(false, runs(savesV)).attachedBy(serving).called(), 0},
	} {
		if got := nextLook(written(c.in).View); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
