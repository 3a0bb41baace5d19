package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestSavedImage: which image is a guest's that ended.
func TestSavedImage(t *testing.T) {
	const mounted = contract.HibernationFolder + "/" + scene.Directory
	const later = "restore-web-20260102T040000Z"
	words := func(folder string) func(*view.Pod) { return scene.Exited(0, scene.SavedTo(scene.Image, folder)) }
	promised := func(p *view.Pod) { scene.RunsSince(time.Hour)(p); scene.Promised(p) }
	for _, c := range []struct {
		name string
		in   scene.Scene
		want string // the directory; empty: none
	}{
		{"its container says so", scene.ToTarget(scene.Saving(true, words(mounted))), scene.Directory},
		{"its agent says so", scene.ToTarget(scene.Saving(true, scene.Exited(0, ""), scene.SavedBy(scene.Image, mounted))), scene.Directory},
		{"its agent says so, kubelet dead", scene.ToTarget(scene.Saving(true, promised, scene.SavedBy(scene.Image, mounted))), scene.Directory},
		{"attached", scene.ToTarget(scene.Saving(false, words(scene.Directory))), scene.Directory},
		{"cancelled meanwhile", scene.Unasked(scene.ToTarget(scene.Saving(false, words(scene.Directory)).LeavesClaim())), scene.Directory},
		{"by a leader before", scene.ToTarget(scene.Saving(true, words(contract.HibernationFolder+"/"+later))), later},
		{"to one of two claims, as recorded", scene.ToTwo(scene.Saving(false, words(scene.Directory)), scene.Directory), scene.Directory},
		{"to one of two claims, unknown which", scene.ToTwo(scene.Saving(false, words(later)), scene.Directory), ""},
		{"nothing recorded", scene.ToNothing(scene.Saving(true, words(mounted))), ""},
		{"attached, elsewhere", scene.ToTarget(scene.Saving(false, words("/images/"+scene.Directory))), ""},
		{"nobody asked", scene.Saving(true, words(mounted)), ""},
		{"mounted, said to be attached", scene.ToTarget(scene.Saving(true, words(scene.Directory))), ""},
		{"attached, said to be mounted", scene.ToTarget(scene.Saving(false, words(mounted))), ""},
		{"elsewhere", scene.ToTarget(scene.Saving(true, words("/images/"+scene.Directory))), ""},
		{"above", scene.ToTarget(scene.Saving(true, words(contract.HibernationFolder+"/../"+scene.Directory))), ""},
		{"another VM's", scene.ToTarget(scene.Saving(true, words(contract.HibernationFolder+"/restore-db-20260102T030400Z"))), ""},
		{"a name of nobody's", scene.ToTarget(scene.Saving(true, words(contract.HibernationFolder+"/monday"))), ""},
		{"it failed after all", scene.ToTarget(scene.Saving(true, scene.Exited(1, scene.SavedTo(scene.Image, mounted)))), ""},
		{"no id", scene.ToTarget(scene.Saving(true, scene.Exited(0, ""), scene.SavedBy("", mounted))), ""},
		{"shut down", scene.ToTarget(scene.Saving(true, scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_SHUTDOWN))), ""},
		{"still there", scene.ToTarget(scene.Saving(true, scene.Runs(scene.Running))), ""},
	} {
		s := Of(c.in.View)
		got := s.SavedImage
		if c.want == "" {
			if got != nil || s.Reason == condition.ReasonSaved {
				t.Errorf("%s: %+v, reason %q", c.name, got, s.Reason)
			}
			continue
		}
		if got == nil || got.Directory != c.want || got.ID != scene.Image || got.ClaimName != "memory" || got.NodeName != "node-a" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
		if s.Phase != kubevirtv1.PhaseSucceeded || s.Reason != condition.ReasonSaved {
			t.Errorf("%s: phase %s, reason %s", c.name, s.Phase, s.Reason)
		}
	}
}

// TestSavedDetails: what a restore needs beside the image.
func TestSavedDetails(t *testing.T) {
	const mounted = contract.HibernationFolder + "/" + scene.Directory
	s := scene.ToTarget(scene.Saving(true, scene.Exited(0, scene.SavedTo(scene.Image, mounted)), scene.SavedBy(scene.Image, mounted)))
	s.Instance.Status.VirtualMachineRevisionName = "revision-start-vm-x-1"
	s.Instance.Status.Conditions = []kubevirtv1.Condition{condition.New(kubevirtv1.ConditionPaused, metav1.ConditionTrue, condition.ReasonPausedByUser, "")}
	s.Images = []kubevirtv1.SavedContainerImage{{Container: contract.ContainerCompute, Image: "vmlet@sha256:1"}}
	got := Of(s.View).SavedImage
	if got.VMM != "qemu" || got.VMMVersion != "10.0.2" || got.Hypervisor != "kvm" || !got.Paused || got.SizeBytes != 0 ||
		got.VirtualMachineRevisionName != "revision-start-vm-x-1" || len(got.Images) != 1 || !got.Timestamp.Time.Equal(scene.Time) {
		t.Errorf("by the status alone: %+v", got)
	}
	s = s.Called(scene.DoneAgo(0), func(c *saves.Call) {
		c.Result = &nodev1.SaveResult{ImageId: scene.Image, ImageBytes: 1 << 63}
	})
	if got := Of(s.View).SavedImage; got.Paused || got.SizeBytes < 1<<62 {
		t.Errorf("by the agent's result: paused %v, %d bytes", got.Paused, got.SizeBytes)
	}
	s.Call.Result.ImageId = "another"
	if got := Of(s.View).SavedImage; !got.Paused || got.SizeBytes != 0 {
		t.Errorf("by the result of another image: paused %v, %d bytes", got.Paused, got.SizeBytes)
	}
}

// TestRanUnseen: a guest that went on from its image and ended while nobody looked has run, by what says so, and by nothing
// less: its image would be removed.
func TestRanUnseen(t *testing.T) {
	for _, c := range []struct {
		name string
		in   scene.Scene
		want bool
	}{
		{"its shim says that it shut down", scene.Resumed(scene.Exited(0, scene.EndedWith(contract.GuestShutdown, "the guest shut down")+"\n")), true},
		{"its shim says that it suspended itself", scene.Resumed(scene.Exited(0, scene.EndedWith(contract.GuestSuspended, "it did"))), true},
		{"its shim says that it was saved", scene.Resumed(scene.Exited(0, scene.SavedTo("id", "folder"))), true},
		{"its shim says that it panicked", scene.Resumed(scene.Exited(1, scene.EndedWith(contract.GuestPanicked, "it did"))), true},
		{"an older shim says that it shut down", scene.Resumed(scene.Exited(0, "the guest shut down")), true},
		{"its shim says that it shut down, and failed", scene.Resumed(scene.Exited(1, scene.EndedWith(contract.GuestShutdown, "it did"))), false},
		{"its agent says that it shut down", scene.Resumed(scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_SHUTDOWN)), true},
		{"its agent says that it had its time to", scene.Resumed(scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), true},
		{"its agent says that it panicked", scene.Resumed(scene.Exited(1, ""), scene.EndedBy(nodev1.EndReason_END_REASON_PANICKED)), true},
		{"a shim of before says nothing", scene.Resumed(scene.Exited(0, "")), false},
		{"it was ended before", scene.Resumed(scene.Exited(0, scene.EndedWith(contract.GuestUnstarted, "ended before the guest ran"))), false},
		{"killed", scene.Resumed(scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_KILLED)), false},
		{"crashed", scene.Resumed(scene.Exited(1, ""), scene.EndedBy(nodev1.EndReason_END_REASON_CRASHED)), false},
		{"damaged", scene.Resumed(scene.Exited(1, scene.EndedWith(contract.RestoreImageDamaged, "sums"))), false},
		{"starts", scene.Resumed(scene.Runs(nodev1.State_STATE_RESTORING)), false},
		{"boots, which nobody asks", scene.On(kubevirtv1.PhaseScheduled, scene.Exited(0, scene.EndedWith(contract.GuestShutdown, "it did"))), false},
	} {
		s := Of(c.in.View)
		if got := view.Entered(s, kubevirtv1.PhaseRunning); got != c.want {
			t.Errorf("%s: it is said to have run: %v, want %v (%s)", c.name, got, c.want, s.Phase)
		}
		if failed := condition.Find(s.Conditions, kubevirtv1.ConditionHibernationRestoreInProgress); c.want && failed != nil {
			t.Errorf("%s: it says %s %q of the resume", c.name, failed.Reason, failed.Message)
		}
	}
}
