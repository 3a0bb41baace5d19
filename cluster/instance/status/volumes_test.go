package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/scene"
)

// TestVolumePhases: a volume waits for its claim, has it, and is ready in a guest.
func TestVolumePhases(t *testing.T) {
	s := scene.Full()
	s.Claims["data"].Status.Phase = corev1.ClaimPending
	s.Claims["data"].Annotations[preallocation] = "true"
	phases := func(in kubevirtv1.Phase) (all []string) {
		for _, v := range volumeStatuses(s.View, in) {
			all = append(all, v.Name+" "+v.Phase)
		}
		return all
	}
	for _, test := range []struct {
		in    kubevirtv1.Phase
		claim corev1.PersistentVolumeClaimPhase
		want  string
	}{
		{kubevirtv1.PhasePending, corev1.ClaimPending, "root Pending, data Pending, seed Pending, scratch Pending"},
		{kubevirtv1.PhaseScheduled, corev1.ClaimBound, "root Pending, data Bound, seed Pending, scratch Pending"},
		{kubevirtv1.PhaseRunning, corev1.ClaimBound, "root Ready, data Ready, seed Ready, scratch Ready"},
	} {
		s.Claims["data"].Status.Phase = test.claim
		if got := strings.Join(phases(test.in), ", "); got != test.want {
			t.Errorf("%s: %s, want %s", test.in, got, test.want)
		}
	}
	if !volumeStatuses(s.View, kubevirtv1.PhaseRunning)[1].PersistentVolumeClaimInfo.Preallocated {
		t.Error("a claim that CDI has allocated beforehand does not say so")
	}
}

// TestDiskNames follow the buses, in the order of the list.
func TestDiskNames(t *testing.T) {
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 701: "zz", 702: "aaa"} {
		if got := letters(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	vmi := scene.Full().Instance
	vmi.Spec.Domain.Devices.Disks[1].Disk.Bus = ""
	if got := diskNames(vmi)["data"]; got != "sda" {
		t.Errorf("without a bus on amd64: %s", got)
	}
	vmi.Annotations = map[string]string{"vmlet.io/vmm": "cloud-hypervisor"}
	if got := diskNames(vmi)["data"]; got != "vdb" {
		t.Errorf("without a bus under cloud-hypervisor: %s", got)
	}
	vmi.Annotations = nil
	vmi.Spec.Architecture = "arm64"
	if got := diskNames(vmi)["data"]; got != "vdb" {
		t.Errorf("without a bus on arm64: %s", got)
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
		all := Of(c.in.View).VolumeStatus
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
	s := Of(scene.Saving(false, scene.Runs(scene.Running)).AttachedBy(scene.Unplaceable, scene.Since(time.Minute)).View)
	if got := s.VolumeStatus[0]; got.Reason != condition.ReasonAttachFailed || !strings.Contains(got.Message, "1 node has no room") {
		t.Errorf("it says %s %q", got.Reason, got.Message)
	}
	if got := Of(scene.NoClaim(scene.Unasked(scene.Saving(false, scene.Runs(scene.Running)))).View).VolumeStatus[0]; got.Reason != "" {
		t.Errorf("of a claim that nobody wants to be attached it says %s %q", got.Reason, got.Message)
	}
	if got := Of(scene.Resumed(scene.Bound).Change(scene.OnMemory("next")).View).VolumeStatus; len(got) != 2 || got[1].HibernationInfo != nil {
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
		if got := Of(c.in.View).VolumeStatus; len(got) != c.want {
			t.Errorf("a volume that was taken away, %s: %+v, want %d", c.name, got, c.want)
		}
	}
	if got := Of(scene.Resumed(scene.Bound).View).VolumeStatus; len(got) != 1 || got[0].HibernationInfo.TargetFileName != scene.Directory {
		t.Errorf("of a guest that goes on: %+v", got)
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
		if got := save.RecordedTarget(Of(c.in.View), "hibernate-memory"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
