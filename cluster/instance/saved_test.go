package instance

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// toTarget has the status name where the guest is saved to.
func toTarget(s scene) scene {
	s.Instance.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "hibernate-memory", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: "memory", TargetFileName: testDirectory}}}
	return s
}

// toTwo is toTarget with another claim beside it, which has another directory.
func toTwo(s scene, directory string) scene {
	s = toTarget(s)
	other := kubevirtv1.VolumeStatus{Name: "hibernate-next", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: "next", TargetFileName: "restore-web-20260101T000000Z"}}
	s.Instance.Status.VolumeStatus[0].HibernationInfo.TargetFileName = directory
	s.Instance.Status.VolumeStatus = append([]kubevirtv1.VolumeStatus{other}, s.Instance.Status.VolumeStatus...)
	return s.change(onMemory("next"))
}

// savedTo are a shim's last words about a VM that was saved.
func savedTo(id, folder string) string {
	return string(contract.Ending{Reason: contract.GuestSaved, Image: id, Directory: folder, Message: "the guest was saved"}.Encode())
}

// endedWith are a shim's last words.
func endedWith(reason, message string) string {
	return string(contract.Ending{Reason: reason, Message: message}.Encode())
}

// TestSavedWords: what a shim says that a VM was saved to is taken as it is to be, or not at all.
func TestSavedWords(t *testing.T) {
	const folder = contract.HibernationFolder + "/x"
	for _, c := range []struct {
		message string
		want    writtenImage
	}{
		{savedTo(testImage, folder), writtenImage{testImage, folder}},
		{savedTo(testImage, folder) + "\n", writtenImage{testImage, folder}},
		{savedTo(testImage, ""), writtenImage{}},
		{savedTo("", folder), writtenImage{}},
		{savedTo(testImage, " "+folder), writtenImage{}},
		{savedTo(testImage, folder+" and more"), writtenImage{}},
		{savedTo(testImage, folder+"\nmore"), writtenImage{}},
		{savedTo("../../etc", folder), writtenImage{}},
		{savedTo(strings.ToUpper(testImage), folder), writtenImage{}},
		{savedTo(testImage, "/"+strings.Repeat("a", maxFolder)), writtenImage{}},
		{strings.Replace(savedTo(testImage, folder), contract.GuestSaved, contract.GuestShutdown, 1), writtenImage{}},
		{"saved image " + testImage + " " + folder, writtenImage{testImage, folder}},
		{"saved image " + testImage + "  " + folder, writtenImage{}},
		{"once saved image " + testImage + " " + folder, writtenImage{}},
		{"", writtenImage{}},
	} {
		got, is := writtenBy(contract.ReadEnding(c.message))
		if !is {
			got = writtenImage{}
		}
		if got != c.want {
			t.Errorf("%.80q: %+v, want %+v", c.message, got, c.want)
		}
	}
}

// savedBy has an agent's report be that the VM was saved.
func savedBy(id, folder string) func(*view.Pod) {
	return func(p *view.Pod) {
		endedBy(nodev1.EndReason_END_REASON_SAVED)(p)
		p.Report.VM.Status.Image = &nodev1.ImageReference{Path: folder, ImageId: id}
		p.Report.VM.Status.Hypervisor, p.Report.VM.Status.Vmm = "kvm", &nodev1.Vmm{Name: "qemu", Version: "10.0.2"}
	}
}

// TestSavedImage: which image is a guest's that ended.
func TestSavedImage(t *testing.T) {
	const mounted = contract.HibernationFolder + "/" + testDirectory
	const later = "restore-web-20260102T040000Z"
	words := func(folder string) func(*view.Pod) { return exited(0, savedTo(testImage, folder)) }
	promised := func(p *view.Pod) { runsSince(time.Hour)(p); promised(p) }
	for _, c := range []struct {
		name string
		in   scene
		want string // the directory; empty: none
	}{
		{"its container says so", toTarget(saving(true, words(mounted))), testDirectory},
		{"its agent says so", toTarget(saving(true, exited(0, ""), savedBy(testImage, mounted))), testDirectory},
		{"its agent says so, kubelet dead", toTarget(saving(true, promised, savedBy(testImage, mounted))), testDirectory},
		{"attached", toTarget(saving(false, words(testDirectory))), testDirectory},
		{"cancelled meanwhile", unasked(toTarget(saving(false, words(testDirectory)).leavesClaim())), testDirectory},
		{"by a leader before", toTarget(saving(true, words(contract.HibernationFolder+"/"+later))), later},
		{"to one of two claims, as recorded", toTwo(saving(false, words(testDirectory)), testDirectory), testDirectory},
		{"to one of two claims, unknown which", toTwo(saving(false, words(later)), testDirectory), ""},
		{"nothing recorded", toNothing(saving(true, words(mounted))), ""},
		{"attached, elsewhere", toTarget(saving(false, words("/images/"+testDirectory))), ""},
		{"nobody asked", saving(true, words(mounted)), ""},
		{"mounted, said to be attached", toTarget(saving(true, words(testDirectory))), ""},
		{"attached, said to be mounted", toTarget(saving(false, words(mounted))), ""},
		{"elsewhere", toTarget(saving(true, words("/images/"+testDirectory))), ""},
		{"above", toTarget(saving(true, words(contract.HibernationFolder+"/../"+testDirectory))), ""},
		{"another VM's", toTarget(saving(true, words(contract.HibernationFolder+"/restore-db-20260102T030400Z"))), ""},
		{"a name of nobody's", toTarget(saving(true, words(contract.HibernationFolder+"/monday"))), ""},
		{"it failed after all", toTarget(saving(true, exited(1, savedTo(testImage, mounted)))), ""},
		{"no id", toTarget(saving(true, exited(0, ""), savedBy("", mounted))), ""},
		{"shut down", toTarget(saving(true, exited(0, ""), endedBy(nodev1.EndReason_END_REASON_SHUTDOWN))), ""},
		{"still there", toTarget(saving(true, runs(running))), ""},
	} {
		s := statusOf(c.in.View)
		got := s.SavedImage
		if c.want == "" {
			if got != nil || s.Reason == condition.ReasonSaved {
				t.Errorf("%s: %+v, reason %q", c.name, got, s.Reason)
			}
			continue
		}
		if got == nil || got.Directory != c.want || got.ID != testImage || got.ClaimName != "memory" || got.NodeName != "node-a" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
		if s.Phase != kubevirtv1.PhaseSucceeded || s.Reason != condition.ReasonSaved {
			t.Errorf("%s: phase %s, reason %s", c.name, s.Phase, s.Reason)
		}
	}
}

// TestSavedDetails: what a restore needs beside the image.
func TestSavedDetails(t *testing.T) {
	const mounted = contract.HibernationFolder + "/" + testDirectory
	s := toTarget(saving(true, exited(0, savedTo(testImage, mounted)), savedBy(testImage, mounted)))
	s.Instance.Status.VirtualMachineRevisionName = "revision-start-vm-x-1"
	s.Instance.Status.Conditions = []kubevirtv1.Condition{condition.New(kubevirtv1.ConditionPaused, metav1.ConditionTrue, condition.ReasonPausedByUser, "")}
	s.Images = []kubevirtv1.SavedContainerImage{{Container: contract.ContainerCompute, Image: "vmlet@sha256:1"}}
	got := statusOf(s.View).SavedImage
	if got.VMM != "qemu" || got.VMMVersion != "10.0.2" || got.Hypervisor != "kvm" || !got.Paused || got.SizeBytes != 0 ||
		got.VirtualMachineRevisionName != "revision-start-vm-x-1" || len(got.Images) != 1 || !got.Timestamp.Time.Equal(testTime) {
		t.Errorf("by the status alone: %+v", got)
	}
	s = s.called(doneAgo(0), func(c *saves.Call) {
		c.Result = &nodev1.SaveResult{ImageId: testImage, ImageBytes: 1 << 63}
	})
	if got := statusOf(s.View).SavedImage; got.Paused || got.SizeBytes < 1<<62 {
		t.Errorf("by the agent's result: paused %v, %d bytes", got.Paused, got.SizeBytes)
	}
	s.Call.Result.ImageId = "another"
	if got := statusOf(s.View).SavedImage; !got.Paused || got.SizeBytes != 0 {
		t.Errorf("by the result of another image: paused %v, %d bytes", got.Paused, got.SizeBytes)
	}
}

// TestNodeSelector: a guest that has seen its node's CPU goes on where that is the same.
func TestNodeSelector(t *testing.T) {
	labels := map[string]string{
		corev1.LabelArchStable: "amd64", contract.LabelHypervisorState + "kvm": "works", contract.LabelHypervisorState + "mshv": "absent",
		contract.LabelHostModelCPU + "Skylake": "true", contract.LabelCPUModel + "Haswell": "true", "zone": "a",
	}
	const kvm, host = contract.LabelHypervisorState + "kvm", contract.LabelHostModelCPU + "Skylake"
	model := func(name string) *kubevirtv1.CPU { return &kubevirtv1.CPU{Model: name} }
	for _, c := range []struct {
		name       string
		hypervisor string
		cpu        *kubevirtv1.CPU
		want       []string
	}{
		{"no CPU said", "kvm", nil, []string{corev1.LabelArchStable, kvm, host}},
		{"no model", "kvm", model(""), []string{corev1.LabelArchStable, kvm, host}},
		{"the host's model", "kvm", model(convert.HostModel), []string{corev1.LabelArchStable, kvm, host}},
		{"the host's CPU", "kvm", model(convert.HostPassthrough), []string{corev1.LabelArchStable, kvm, host}},
		{"a model", "kvm", model("Haswell"), []string{corev1.LabelArchStable, kvm}},
		{"emulated", "emulation", nil, []string{corev1.LabelArchStable}},
		{"a hypervisor that does not work by the labels", "mshv", model("Haswell"), []string{corev1.LabelArchStable}},
	} {
		got := nodeSelector(labels, c.hypervisor, c.cpu)
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%s: %v, want %v", c.name, keys, c.want)
		}
	}
	if got := nodeSelector(nil, "kvm", nil); got != nil {
		t.Errorf("of a node that is gone: %v", got)
	}
}

// resumed is a VM that goes on from an image.
func resumed(change ...func(*view.Pod)) scene {
	return newScene().change(onMemory("memory"), func(v *kubevirtv1.VirtualMachineInstance) {
		v.Spec.StartStrategy = new(kubevirtv1.StartRestore)
		v.Spec.RestoreFrom = &kubevirtv1.SavedImage{
			ID: testImage, ClaimName: "memory", Directory: testDirectory, NodeName: "node-b",
			NodeSelector: map[string]string{corev1.LabelArchStable: "amd64"},
		}
	}).withPod(change...).recordedAs(kubevirtv1.PhaseScheduled)
}

// TestResuming: what the conditions say of a guest that goes on, and why it did not.
func TestResuming(t *testing.T) {
	crashed := func(message string) func(*view.Pod) {
		return func(p *view.Pod) {
			exited(1, "")(p)
			endedBy(nodev1.EndReason_END_REASON_CRASHED)(p)
			p.Report.VM.Status.Message = message
		}
	}
	for _, c := range []struct {
		name   string
		in     scene
		status metav1.ConditionStatus
		reason string
	}{
		{"starts", resumed(runs(nodev1.State_STATE_RESTORING)), metav1.ConditionTrue, condition.ReasonResuming},
		{"runs", resumed(runs(running)), "", ""},
		{"paused", resumed(runs(paused)), "", ""},
		{"ran, and was ended", resumed(exited(0, "")), "", ""},
		{"used", resumed(exited(1, endedWith(contract.RestoreImageUsed, "a guest has gone on from it"))), metav1.ConditionFalse, contract.RestoreImageUsed},
		{"used, by the agent", resumed(crashed(contract.RestoreImageUsed + ": a guest has gone on from it")), metav1.ConditionFalse, contract.RestoreImageUsed},
		{"used, by the container, before its agent's report", resumed(func(p *view.Pod) {
			crashed("QEMU aborted")(p)
			exited(1, endedWith(contract.RestoreImageUsed, "a guest has gone on from it"))(p)
		}), metav1.ConditionFalse, contract.RestoreImageUsed},
		{"disk", resumed(exited(1, endedWith(contract.RestoreDiskChanged, "disk root"))), metav1.ConditionFalse, contract.RestoreDiskChanged},
		{"disk, by an older shim", resumed(exited(1, "DiskChanged: disk root")), metav1.ConditionFalse, contract.RestoreDiskChanged},
		{"a word of its own", resumed(exited(1, "Panic: disk root")), metav1.ConditionFalse, condition.ReasonRestoreFailed},
		{"no words", resumed(exited(1, "")), metav1.ConditionFalse, condition.ReasonRestoreFailed},
		{"node deleted", resumed(runsSince(0), noNode), metav1.ConditionFalse, "NodeDeleted"},
		{"boots", on(kubevirtv1.PhaseScheduled, runs(nodev1.State_STATE_STARTING)), "", ""},
	} {
		s := statusOf(c.in.View)
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

// TestRanUnseen: a guest that went on from its image and ended while nobody looked has run, by what says so, and by nothing
// less: its image would be removed.
func TestRanUnseen(t *testing.T) {
	for _, c := range []struct {
		name string
		in   scene
		want bool
	}{
		{"its shim says that it shut down", resumed(exited(0, endedWith(contract.GuestShutdown, "the guest shut down")+"\n")), true},
		{"its shim says that it suspended itself", resumed(exited(0, endedWith(contract.GuestSuspended, "it did"))), true},
		{"its shim says that it was saved", resumed(exited(0, savedTo("id", "folder"))), true},
		{"its shim says that it panicked", resumed(exited(1, endedWith(contract.GuestPanicked, "it did"))), true},
		{"an older shim says that it shut down", resumed(exited(0, "the guest shut down")), true},
		{"its shim says that it shut down, and failed", resumed(exited(1, endedWith(contract.GuestShutdown, "it did"))), false},
		{"its agent says that it shut down", resumed(exited(0, ""), endedBy(nodev1.EndReason_END_REASON_SHUTDOWN)), true},
		{"its agent says that it had its time to", resumed(exited(0, ""), endedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), true},
		{"its agent says that it panicked", resumed(exited(1, ""), endedBy(nodev1.EndReason_END_REASON_PANICKED)), true},
		{"a shim of before says nothing", resumed(exited(0, "")), false},
		{"it was ended before", resumed(exited(0, endedWith(contract.GuestUnstarted, "ended before the guest ran"))), false},
		{"killed", resumed(exited(0, ""), endedBy(nodev1.EndReason_END_REASON_KILLED)), false},
		{"crashed", resumed(exited(1, ""), endedBy(nodev1.EndReason_END_REASON_CRASHED)), false},
		{"damaged", resumed(exited(1, endedWith(contract.RestoreImageDamaged, "sums"))), false},
		{"starts", resumed(runs(nodev1.State_STATE_RESTORING)), false},
		{"boots, which nobody asks", on(kubevirtv1.PhaseScheduled, exited(0, endedWith(contract.GuestShutdown, "it did"))), false},
	} {
		s := statusOf(c.in.View)
		if got := view.Entered(s, kubevirtv1.PhaseRunning); got != c.want {
			t.Errorf("%s: it is said to have run: %v, want %v (%s)", c.name, got, c.want, s.Phase)
		}
		if failed := condition.Find(s.Conditions, kubevirtv1.ConditionHibernationRestoreInProgress); c.want && failed != nil {
			t.Errorf("%s: it says %s %q of the resume", c.name, failed.Reason, failed.Message)
		}
	}
}

// TestEndedBeforeItRan: a pod that is deleted while it waits is not said to have had a guest.
func TestEndedBeforeItRan(t *testing.T) {
	for _, in := range []scene{resumed(exited(0, endedWith(contract.GuestUnstarted, "ended before the guest ran"))), on(kubevirtv1.PhaseScheduled, exited(0, endedWith(contract.GuestUnstarted, "ended before the guest ran")))} {
		ready := condition.Find(statusOf(in.View).Conditions, kubevirtv1.ConditionReady)
		if want := "the VM was ended before its guest ran"; !strings.Contains(ready.Message, want) {
			t.Errorf("%q, want %q in it", ready.Message, want)
		}
	}
}

// TestNoNodeFits: a guest that no node takes says what it waits for.
func TestNoNodeFits(t *testing.T) {
	s := resumed(func(p *view.Pod) { unplaceable(p.Pod) })
	c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionReady)
	for _, want := range []string{"1 node has no room", "saved on node node-b", "kubernetes.io/arch=amd64"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("%q, want %q in it", c.Message, want)
		}
	}
}
