package status

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// TestConditions: one at a time, in what state.
func TestConditions(t *testing.T) {
	inParts := string(contract.Ending{Message: "starting failed: cpu.model: no avx512", Faults: []contract.Fault{{Field: "cpu.model", Text: "no avx512", UseVMM: "qemu"}}}.Encode())
	crashedInParts := func(p *view.Pod) {
		scene.EndedBy(nodev1.EndReason_END_REASON_CRASHED)(p)
		p.Report.VM.Status.Faults = []*nodev1.Fault{{Field: "cpu.model", Text: "no avx512"}}
	}
	failedBefore := func(message string) func(*view.Pod) {
		return func(p *view.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}
		}
	}
	damagedInParts := func(p *view.Pod) {
		p.Report.VM.Status.PauseReason = nodev1.PauseReason_PAUSE_REASON_IMAGE_DAMAGED
		p.Report.VM.Status.Faults = []*nodev1.Fault{{Object: contract.HibernationFolder + "/x/memory", Text: contract.HibernationFolder + "/x/memory: damaged"}}
	}
	limitedInParts := func(p *view.Pod) {
		p.Report.VM.Status.EffectiveSpec = &specv1.VirtualMachineSpec{Networks: []*specv1.NetworkInterface{{Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{}}}}}
		p.Report.VM.Status.NetworkLimitedFaults = []*nodev1.Fault{{Text: "no bridge of claim web"}}
	}
	deniedInParts := func(p *view.Pod) {
		p.Report.VM.Status.Guest = &nodev1.GuestStatus{Credentials: &nodev1.GuestCredentials{
			Message: "no", Faults: []*nodev1.Fault{{Object: contract.KeysFolder + "/ada/id.pub", Text: contract.KeysFolder + "/ada/id.pub: too long"}},
		}}
	}
	waiting := func(reason, message string) func(*view.Pod) {
		return scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	unschedulable := func(p *view.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}
	}
	pausedFor := func(r nodev1.PauseReason) func(*view.Pod) {
		return func(p *view.Pod) {
			scene.Heard(nodev1.State_STATE_PAUSED)(p)
			p.Report.VM.Status.PauseReason, p.Report.VM.Status.PauseDisk = r, "root"
		}
	}
	rejected := func(p *view.Pod) {
		scene.Failed(p)
		p.Status.Reason, p.Status.Message = "OutOfcpu", "no room"
	}
	standsBy := func(p *view.Pod) {
		p.Labels = map[string]string{contract.LabelPoolStandby: "Hibernated"}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady"}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		}
	}
	const isRunning, scheduling = kubevirtv1.PhaseRunning, kubevirtv1.PhaseScheduling
	for _, test := range []struct {
		name, of string
		in       scene.Scene
		status   metav1.ConditionStatus // empty: it is not there
		reason   string
		says     string
	}{
		{"no pod", "Ready", scene.New(), "False", "PodNotExists", "no pod yet"},
		{"starting", "Ready", scene.On(scheduling, scene.Bound), "False", "GuestNotRunning", "not started yet"},
		{"ready", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady), "True", "", ""},
		{"ready, and stands by", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), standsBy), "True", "", ""},
		{"no word of the kubelet", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running)), "False", "PodConditionMissing", "kubelet"},
		{"paused", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.PodReady, pausedFor(nodev1.PauseReason_PAUSE_REASON_USER)), "False", "GuestNotRunning", "paused"},
		{"deleted", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady, scene.Ending), "False", "PodTerminating", "grace period"},
		{"node lost from sight", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Renewed(time.Minute)), "False", "NodeUnresponsive",
			"node node-a has not been heard of since 2026-01-02T03:03:05Z; the VM may still run there; it is started elsewhere when the node is deleted or tainted node.kubernetes.io/out-of-service"},
		{"node not ready", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown)), "False", "NodeUnresponsive", "node node-a is not ready since 2026-01-02T02:04:05Z; "},
		{"ended", "Ready", scene.On(isRunning, scene.Exited(1, "it broke")), "False", "GuestNotRunning", "it broke"},
		{"unschedulable", "PodScheduled", scene.On(scheduling, unschedulable), "False", "Unschedulable", "0/1 nodes"},
		{"scheduled", "PodScheduled", scene.On(scheduling, scene.Bound, scene.PodReady), "", "", ""},
		{"no image", "Synchronized", scene.On(scheduling, waiting("ErrImagePull", "not found")), "False", "ErrImagePull", "image vmlet:1 can't be pulled: it is vmlet's own, which the cluster's administrator chooses, and imagePullSecrets in the KubeVirt object; the node says: not found"},
		{"no configuration", "Synchronized", scene.On(scheduling, waiting("CreateContainerConfigError", "no such key")), "False", "CreateContainerConfigError", "container compute does not start: no such key"},
		{"a node's words", "Synchronized", scene.On(scheduling, waiting("CrashLoopBackOff", ""), failedBefore(`{"message":"no","faults":[{"object":"/dev/vmlet/gone","text":"/dev/vmlet/gone: no"}]}`)), "False", "CrashLoopBackOff", "container compute does not start: volume gone: no"},
		{"an older node's words", "Synchronized", scene.On(scheduling, waiting("CrashLoopBackOff", ""), failedBefore("/dev/vmlet/gone: no")), "False", "CrashLoopBackOff", "container compute does not start: /dev/vmlet/gone: no"},
		{"paused, in parts", "Paused", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Paused), damagedInParts), "True", "Paused", "memory image x: damaged"},
		{"network, in parts", string(condition.NetworkLimited), scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), limitedInParts), "True", condition.ReasonUserNetwork, ": no bridge of claim web"},
		{"credentials, in parts", string(kubevirtv1.ConditionAccessCredentialsSynchronized), scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), deniedInParts), "False", condition.ReasonNoCredentials, "Secret ada: too long"},
		{"no agent", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Minute), scene.Renewed(0)), "False", "AgentUnavailable", "agent on node node-a is not heard"},
		{"rejected, no agent", "Synchronized", scene.On(scheduling, scene.Bound, rejected), "False", "AgentUnavailable", "node node-a rejected the VM's pod (no room), and vmlet's agent there is not heard"},
		{"rejected, an agent", "Synchronized", scene.On(scheduling, scene.Bound, rejected, scene.Heard()), "", "", ""},
		{"not taken up yet", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(59*time.Second), scene.Heard()), "", "", ""},
		{"not taken up", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Minute), scene.Heard()), "False", "FailedStart",
			"the VM's container runs since 2026-01-02T03:03:05Z, and vmlet's agent on node node-a has not started its VM: see that agent's log"},
		{"back-off grows", "Synchronized", scene.On(scheduling, waiting("CrashLoopBackOff", "back-off 2m40s restarting failed container=compute 0123456789abcdef")), "False", "CrashLoopBackOff", "does not start: back-off restarting failed container=compute …"},
		{"the agent has it", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Minute), scene.Heard(nodev1.State_STATE_STARTING)), "", "", ""},
		{"no node", "Ready", scene.On(scheduling, unschedulable), "False", "GuestNotRunning", "the guest has not started yet: no node takes the VM's pod: 0/1 nodes"},
		{"no claim", "Ready", scene.New().Change(func(v *kubevirtv1.VirtualMachineInstance) {
			v.Spec.Volumes = []kubevirtv1.Volume{{Name: "a", DataVolume: &kubevirtv1.DataVolumeSource{Name: "a"}}}
		}), "False", "PodNotExists", "the VM has no pod yet: there is no PersistentVolumeClaim a"},
		{"in parts", "Synchronized", scene.On(scheduling, scene.Exited(1, inParts)), "False", "FailedStart", "spec.domain.cpu.model: no avx512, or set the annotation vmlet.io/vmm: qemu"},
		{"crashed, in parts", "Ready", scene.On(isRunning, scene.Exited(1, ""), crashedInParts), "False", "GuestNotRunning", "spec.domain.cpu.model: no avx512"},
		{"in the instance's words", "Synchronized", scene.On(scheduling, scene.Exited(1, `{"message":"no","faults":[{"field":"boot.kernel.path","text":"no kernel"}]}`)), "False", "FailedStart", "spec.domain.firmware.kernelBoot.container.kernelPath: no kernel"},
		{"still no image", "Synchronized", scene.On(scheduling, waiting("ImagePullBackOff", "Back-off")), "False", "ImagePullBackOff", "Back-off"},
		{"creating", "Synchronized", scene.On(scheduling, waiting("ContainerCreating", "")), "", "", ""},
		{"never ran", "Synchronized", scene.On(scheduling, scene.Exited(1, "image x has no\nsingle disk file")), "False", "FailedStart", "image x has no single disk file"},
		{"crashed later", "Synchronized", scene.On(isRunning, scene.Exited(1, "x")), "", "", ""},
		{"not migratable", "LiveMigratable", scene.New(), "False", "LiveMigrationNotSupported", "does not migrate"},
		{"by a user", "Paused", scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER)), "True", "PausedByUser", "resumed"},
		{"by an error", "Paused", scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_IO_ERROR)), "True", "PausedIOError", "disk root could not"},
		{"goes on", "Paused", written(scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).WithPod(scene.RunsSince(0), scene.Heard(scene.Running)), "", "", ""},
		{"agent away", "Paused", written(scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).WithPod(scene.RunsSince(0)), "True", "PausedByUser", ""},
		{"ended paused", "Paused", written(scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).WithPod(scene.Exited(0, "")), "", "", ""},
		{"no helper", "NetworkLimited", withoutHelper(), "True", "UserModeNetwork", "whatever the guest does: network.helper is false"},
		{"user network", "NetworkLimited", scene.Full(), "True", "UserModeNetwork", "listed in spec.domain.devices.interfaces"},
		{"emulated", "SoftwareEmulation", scene.Full(), "True", "Emulation", "no /dev/kvm"},
		{"guest agent", "AgentConnected", scene.Full(), "True", "AgentConnected", ""},
		{"not asked yet", "AgentVersionNotSupported", scene.Full(), "", "", ""},
		{"agent that is enough", "AgentVersionNotSupported", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.AgentSays(&nodev1.GuestAgentCondition{Connected: true, Supported: true})), "", "", ""},
		{"agent that lacks much", "AgentVersionNotSupported", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.AgentSays(&nodev1.GuestAgentCondition{Connected: true, Reason: "it lacks guest-ping"})), "True", "CommandsMissing", "guest-ping"},
		{"others' stay", "DataVolumesReady", scene.Full(), "True", "AllDVsReady", ""},
	} {
		c := condition.Find(Of(test.in.View).Conditions, test.of)
		switch {
		case c == nil && test.status != "":
			t.Errorf("%s: no %s", test.name, test.of)
		case c == nil:
		case c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.says):
			t.Errorf("%s: %s is %s, %s, %q; want %s, %s, %q", test.name, test.of, c.Status, c.Reason, c.Message, test.status, test.reason, test.says)
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
		c := condition.Find(Of(s.View).Conditions, kubevirtv1.ConditionSynchronized)
		if c == nil || c.Reason != reason || c.Message != message {
			t.Errorf("%+v, want %s, %s", c, reason, message)
		}
	}
	check("ErrImagePull", want)
	if c := condition.Find(Of(s.View).Conditions, kubevirtv1.ConditionReady); c.Message != "the guest has not started yet: "+want {
		t.Errorf("Ready says %q", c.Message)
	}
	s = written(s).WithPod(waiting("ImagePullBackOff", `Back-off pulling image "debian"`))
	check("ImagePullBackOff", want)
	s = written(s).WithPod(waiting("ImagePullBackOff", `Back-off pulling image "debian": ErrImagePull: gone`))
	check("ImagePullBackOff", strings.Replace(want, "denied", "gone", 1))
	s = written(s).WithPod(waiting("ErrImagePull", "gone"))
	check("ImagePullBackOff", strings.Replace(want, "denied", "gone", 1))
	s.Pod.Spec.InitContainers[0].Image, s.Instance.Spec.Volumes[0].ContainerDisk.Image = "alpine", "alpine"
	check("ImagePullBackOff", strings.NewReplacer("debian", "alpine", "denied", "gone").Replace(want))
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
		{"hardware can't", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(0, 1, inParts(t, contract.Fault{Reason: contract.FaultSaveInstead, Field: "machineType", Text: "no S4: use q35", Advice: "or save the VM instead"}))),
			no, condition.ReasonCannotSuspend, "goes on: spec.domain.machine.type: no S4: use q35, or set hibernateStrategy.mode: Save"},
		{"a node's words", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving).Called(scene.FailedAgo(0, 1, inParts(t, contract.Fault{Object: "/var/run/vmlet/hibernation", Text: "no room in /var/run/vmlet/hibernation (df)"}))),
			no, condition.ReasonSaveFailed, "failed, and the guest goes on: no room in the claim for the guest's memory (df); it is tried again"},
		{"an older node's words", scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Serving).Called(scene.FailedAgo(0, 1, status.Error(codes.FailedPrecondition, "vm a/virt-launcher-web-0a1b: no room (df)"))),
			no, condition.ReasonSaveFailed, "failed, and the guest goes on: vm a/virt-launcher-web-0a1b: no room (df); it is tried again"},
		{"did not suspend", scene.ToSuspend(scene.Saving(false, scene.Runs(scene.Running))).Called(scene.Suspending, scene.FailedAgo(0, 1, scene.ErrSave)), no, condition.ReasonSuspendFailed, "QEMU said no"},
		{"suspended", scene.ToSuspend(scene.Saving(false, scene.Exited(0, scene.EndedWith(contract.GuestSuspended, "it did")))), no, condition.ReasonSuspended, "suspended itself"},
	} {
		s := Of(c.in.View)
		got := condition.Find(s.Conditions, kubevirtv1.ConditionHibernationInProgress)
		if got == nil {
			got = &kubevirtv1.Condition{}
		}
		if got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %s %s %q, want %s %s %q", c.name, got.Status, got.Reason, got.Message, c.status, c.reason, c.says)
		}
	}
}

// inParts is an agent's error with a fault in parts.
func inParts(t *testing.T, f contract.Fault) error {
	t.Helper()
	with, err := status.New(codes.FailedPrecondition, "vm a/virt-launcher-web-0a1b: "+f.Text).WithDetails(faults.Detail([]contract.Fault{f}))
	if err != nil {
		t.Fatal(err)
	}
	return with.Err()
}

// TestResuming: what the conditions say of a guest that goes on, and why it did not.
func TestResuming(t *testing.T) {
	crashed := func(message string) func(*view.Pod) {
		return func(p *view.Pod) {
			scene.Exited(1, "")(p)
			scene.EndedBy(nodev1.EndReason_END_REASON_CRASHED)(p)
			p.Report.VM.Status.Message = message
		}
	}
	for _, c := range []struct {
		name   string
		in     scene.Scene
		status metav1.ConditionStatus
		reason string
	}{
		{"starts", scene.Resumed(scene.Runs(nodev1.State_STATE_RESTORING)), metav1.ConditionTrue, condition.ReasonResuming},
		{"runs", scene.Resumed(scene.Runs(scene.Running)), "", ""},
		{"paused", scene.Resumed(scene.Runs(scene.Paused)), "", ""},
		{"ran, and was ended", scene.Resumed(scene.Exited(0, "")), "", ""},
		{"used", scene.Resumed(scene.Exited(1, scene.EndedWith(contract.RestoreImageUsed, "a guest has gone on from it"))), metav1.ConditionFalse, contract.RestoreImageUsed},
		{"used, by the agent", scene.Resumed(crashed(contract.RestoreImageUsed + ": a guest has gone on from it")), metav1.ConditionFalse, contract.RestoreImageUsed},
		{"used, by the container, before its agent's report", scene.Resumed(func(p *view.Pod) {
			crashed("QEMU aborted")(p)
			scene.Exited(1, scene.EndedWith(contract.RestoreImageUsed, "a guest has gone on from it"))(p)
		}), metav1.ConditionFalse, contract.RestoreImageUsed},
		{"disk", scene.Resumed(scene.Exited(1, scene.EndedWith(contract.RestoreDiskChanged, "disk root"))), metav1.ConditionFalse, contract.RestoreDiskChanged},
		{"disk, by an older shim", scene.Resumed(scene.Exited(1, "DiskChanged: disk root")), metav1.ConditionFalse, contract.RestoreDiskChanged},
		{"a word of its own", scene.Resumed(scene.Exited(1, "Panic: disk root")), metav1.ConditionFalse, condition.ReasonRestoreFailed},
		{"no words", scene.Resumed(scene.Exited(1, "")), metav1.ConditionFalse, condition.ReasonRestoreFailed},
		{"node deleted", scene.Resumed(scene.RunsSince(0), scene.NoNode), metav1.ConditionFalse, "NodeDeleted"},
		{"boots", scene.On(kubevirtv1.PhaseScheduled, scene.Runs(nodev1.State_STATE_STARTING)), "", ""},
	} {
		s := Of(c.in.View)
		got := condition.Find(s.Conditions, kubevirtv1.ConditionHibernationRestoreInProgress)
		if got == nil {
			got = &kubevirtv1.Condition{}
		}
		if got.Status != c.status || got.Reason != c.reason {
			t.Errorf("%s: %s %s %q, want %s %s", c.name, got.Status, got.Reason, got.Message, c.status, c.reason)
		}
		if c.status == metav1.ConditionFalse && s.Reason != c.reason {
			t.Errorf("%s: the status has reason %s, want %s", c.name, s.Reason, c.reason)
		}
	}
}

// TestNoNodeFits: a guest that no node takes says what it waits for.
func TestNoNodeFits(t *testing.T) {
	s := scene.Resumed(func(p *view.Pod) { scene.Unplaceable(p.Pod) })
	c := condition.Find(Of(s.View).Conditions, kubevirtv1.ConditionReady)
	for _, want := range []string{"1 node has no room", "saved on node node-b", "kubernetes.io/arch=amd64"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("%q, want %q in it", c.Message, want)
		}
	}
}

// TestEndedBeforeItRan: a pod that is deleted while it waits is not said to have had a guest.
func TestEndedBeforeItRan(t *testing.T) {
	for _, in := range []scene.Scene{scene.Resumed(scene.Exited(0, scene.EndedWith(contract.GuestUnstarted, "ended before the guest ran"))), scene.On(kubevirtv1.PhaseScheduled, scene.Exited(0, scene.EndedWith(contract.GuestUnstarted, "ended before the guest ran")))} {
		ready := condition.Find(Of(in.View).Conditions, kubevirtv1.ConditionReady)
		if want := "the VM was ended before its guest ran"; !strings.Contains(ready.Message, want) {
			t.Errorf("%q, want %q in it", ready.Message, want)
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
		for _, s := range Of(c.in.View).VolumeStatus {
			got = s.HibernationInfo.StartTimestamp
		}
		if (got != nil) != c.want || got != nil && !got.Equal(new(metav1.NewTime(scene.Time.Add(-time.Minute)))) {
			t.Errorf("%s: %v, want that it began: %v", c.name, got, c.want)
		}
	}
}
