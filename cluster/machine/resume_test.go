package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// TestWaking: who starts a VM whose guest is saved, and how.
func TestWaking(t *testing.T) {
	boot, restore := kubevirtv1.StartBoot, kubevirtv1.StartStrategy("restore")
	for name, c := range map[string]struct {
		strategy   kubevirtv1.RunStrategy
		last       kubevirtv1.RunStrategy
		requests   []kubevirtv1.StateChangeRequest
		start      *kubevirtv1.StartStrategy
		cluster    kubevirtv1.StartStrategy
		evacuation bool
		want       string
	}{
		"always":                   {"Always", "", nil, nil, "Restore", false, "createRestore prune Resuming"},
		"rerun, the same strategy": {"RerunOnFailure", "RerunOnFailure", nil, nil, "Restore", false, "createRestore prune Resuming"},
		"once, the same run":       {"Once", "Once", nil, nil, "Restore", false, "createRestore prune Resuming"},
		"manual":                   {"Manual", "", nil, nil, "Restore", false, "Hibernated"},
		"manual, asked":            {"Manual", "", []kubevirtv1.StateChangeRequest{startRequest()}, nil, "Restore", false, "createRestore prune Resuming"},
		"manual, evacuated":        {"Manual", "", nil, nil, "Restore", true, "createRestore prune Resuming"},
		"halted":                   {"Halted", "", nil, nil, "Restore", false, "Hibernated"},
		"halted, evacuated":        {"Halted", "", nil, nil, "Restore", true, "Hibernated"},
		"hibernate":                {"Hibernate", "", nil, nil, "Restore", false, "Hibernated"},
		"boots":                    {"Always", "", nil, &boot, "Restore", false, "create prune Starting"},
		"boots by the cluster":     {"Always", "", nil, nil, "Boot", false, "create prune Starting"},
		"restores in spite":        {"Always", "", nil, &restore, "Boot", false, "createRestore prune Resuming"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper(c.strategy, before(c.last), requests(c.requests...)).asleep("memory", true)
			s.vm.Spec.StartStrategy, s.cluster.Hibernation.StartStrategy = c.start, c.cluster
			s.vm.Status.HibernationStatus.Evacuation = c.evacuation
			if c.last == "" {
				s.vm.Status.RunStrategy = "Hibernate"
			}
			expect(t, "start", s.step(), c.want)
			if !strings.Contains(c.want, "Restore") {
				return
			}
			spec := s.instance.Spec
			if spec.RestoreFrom == nil || spec.RestoreFrom.ID != "image-1" || len(spec.UtilityVolumes) != 1 || spec.UtilityVolumes[0].ClaimName != "memory" {
				t.Errorf("restoreFrom %+v, utilityVolumes %+v", spec.RestoreFrom, spec.UtilityVolumes)
			}
			if avoids := spec.Affinity != nil; avoids != c.evacuation {
				t.Errorf("affinity %+v", spec.Affinity)
			}
		})
	}
}

// TestResumed: once the guest runs nothing is left of its hibernation, and a claim of the user's
// stays.
func TestResumed(t *testing.T) {
	for _, madeForIt := range []bool{true, false} {
		s := newSleeper("Always", before("Hibernate")).asleep("memory", madeForIt)
		expect(t, "start", s.step(), "createRestore prune Resuming")
		expect(t, "phase", s.vm.Status.ResumeStatus.Phase, "InProgress")
		s.instance.Status.Phase = kubevirtv1.PhaseRunning
		want := "Running"
		if madeForIt {
			want = "unclaim:memory Running"
		}
		if events := eventReasons(decide(s.state)); !slices.Equal(events, []string{"Resumed"}) {
			t.Errorf("events %q", events)
		}
		expect(t, "runs", s.step(), want)
		expect(t, "phase", s.vm.Status.ResumeStatus.Phase, "Completed")
		expect(t, "cleaned", s.step(), "Running")
		expect(t, "phase", s.vm.Status.ResumeStatus.Phase, "Cleaned")
		expect(t, "hibernation", s.phase(), "")
		expect(t, "then", s.step(), "")
		if (s.Claims["memory"] == nil) != madeForIt {
			t.Errorf("made %v: the claim is %v", madeForIt, s.Claims["memory"])
		}
	}
}

// TestResumeStopped: a VM that is stopped before its guest goes on is hibernated as before, and no resume is under way.
func TestResumeStopped(t *testing.T) {
	s := newSleeper("Always", before("Hibernate")).asleep("memory", true)
	expect(t, "start", s.step(), "createRestore prune Resuming")
	halted := kubevirtv1.RunStrategyHalted
	s.vm.Spec.RunStrategy = &halted
	expect(t, "stop", s.step(), "Stopping delete")
	s.instance = nil
	expect(t, "stopped", s.step(), "Hibernated")
	if rs := s.vm.Status.ResumeStatus; rs != nil {
		t.Errorf("resumeStatus is %+v, want none", rs)
	}
	if s.phase() != kubevirtv1.HibernationCompleted || s.Claims["memory"] == nil {
		t.Errorf("hibernationStatus is %+v, and the claims are %v: want the memory kept", s.vm.Status.HibernationStatus, s.Claims)
	}
}

// TestResumedAttached: a claim that was made for the save, and is attached while the memory is read, leaves the
// instance and is deleted once the guest runs. One that stays is mounted, as before, and so is that of an image
// whose shim can do no other, or of a resume that has failed.
func TestResumedAttached(t *testing.T) {
	for name, c := range map[string]struct {
		made, can bool
		failures  int32
		attached  bool
		want      string
	}{
		"made for the save":        {true, true, 0, true, "stop:[] unclaim:memory Running"},
		"an older shim's":          {true, false, 0, false, "unclaim:memory Running"},
		"the user's":               {false, true, 0, false, "Running"},
		"made, once it has failed": {true, true, 1, false, "unclaim:memory Running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper("Always", before("Hibernate")).asleep("memory", c.made)
			s.vm.Status.HibernationStatus.Image.Attachable = c.can
			if c.failures > 0 {
				s.vm.Status.ResumeStatus = &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeFailed, Reason: hibernation.ReasonRestoreFailed, Failures: c.failures, RetryTimestamp: new(metav1.NewTime(s.now))}
			}
			expect(t, "start", s.step(), "createRestore prune Resuming")
			if got := s.instance.Spec.RestoreFrom.Attached; got != c.attached {
				t.Errorf("attached: %v, want %v", got, c.attached)
			}
			if got := s.instance.Spec.RestoreFrom.Attachable; got != c.can {
				t.Errorf("attachable, for the next time: %v, want %v", got, c.can)
			}
			if len(s.instance.Spec.UtilityVolumes) != 1 {
				t.Errorf("utility volumes %v, want that with the image", s.instance.Spec.UtilityVolumes)
			}
			expect(t, "while it is read", s.step(), "")
			s.instance.Status.Phase = kubevirtv1.PhaseRunning
			expect(t, "runs", s.step(), c.want)
			if left := len(s.instance.Spec.UtilityVolumes); (left == 0) != c.attached {
				t.Errorf("%d utility volumes are left", left)
			}
		})
	}
}

// TestResumeFails: nothing is lost of a guest that could not go on. What may pass is tried again
// later and later, what has to be mended when the VM or its claim is another, or somebody asks.
func TestResumeFails(t *testing.T) {
	for reason, mend := range map[string]bool{
		"RestoreFailed": false, "ImagePullFailed": false,
		contract.RestoreImageUsed: true, contract.RestoreImageMissing: true, contract.RestoreImageDamaged: true,
		contract.RestoreImageUnfit: true, contract.RestoreDiskChanged: true,
	} {
		t.Run(reason, func(t *testing.T) {
			s := newSleeper("Always", before("Hibernate")).asleep("memory", true)
			for n := int32(1); n <= 3; n++ {
				if got := s.step(); got != "createRestore prune Resuming" {
					t.Fatalf("try %d: %q", n, got)
				}
				s.instance.UID = types.UID(fmt.Sprint("try-", n))
				s.instance.Status.Phase = kubevirtv1.PhaseFailed
				s.instance.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionHibernationRestoreInProgress, Status: "False", Reason: reason, Message: "why"}}
				if events := eventReasons(decide(s.state)); !slices.Equal(events, []string{"ResumeFailed"}) {
					t.Errorf("events %q", events)
				}
				ended := s.instance
				expect(t, "failed", s.step(), "Hibernated delete")
				at := metav1.NewTime(s.now)
				s.instance = ended
				s.instance.DeletionTimestamp = &at
				s.step() // it takes its time to go
				s.instance = nil
				rs := s.vm.Status.ResumeStatus
				if rs.Phase != "Failed" || rs.Reason != reason || rs.Message != "why" || rs.Failures != n || (rs.RetryTimestamp == nil) != mend {
					t.Errorf("%+v", rs)
				}
				if s.vm.Status.StartFailure != nil || s.vm.Status.HibernationStatus.Image == nil || s.Claims["memory"] == nil {
					t.Errorf("status %+v, claims %v", s.vm.Status, s.Claims)
				}
				s.step()
				expect(t, "waits", s.step(), "")
				s.now = s.now.Add(time.Hour)
				if !mend {
					continue
				}
				expect(t, "an hour later", s.step(), "")
				switch n {
				case 1:
					s.vm.Generation++
				case 2:
					s.Claims["memory"].UID = "another"
				}
			}
		})
	}
}

// TestManualResumeIsTriedAgain: a VM that somebody has started is, as its status says, at the time that it says; one whose
// failure has to be mended is not.
func TestManualResumeIsTriedAgain(t *testing.T) {
	for reason, again := range map[string]string{"RestoreFailed": "createRestore prune Resuming", contract.RestoreImageDamaged: ""} {
		s := newSleeper("Manual", before("Hibernate")).asleep("memory", true)
		s.vm.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{{Action: kubevirtv1.StateChangeStart}}
		s.step()
		if s.instance == nil {
			t.Fatal("it is not started")
		}
		s.instance.UID, s.instance.Status.Phase = "try-1", kubevirtv1.PhaseFailed
		s.instance.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionHibernationRestoreInProgress, Status: "False", Reason: reason, Message: "why"}}
		s.step()
		s.instance = nil
		s.step()
		expect(t, "waits", s.step(), "")
		s.now = s.now.Add(time.Minute)
		expect(t, reason+", a minute later", s.step(), again)
	}
}

// TestResumeRevision: a guest goes on with the hardware that it had, whatever the VM's spec has become;
// without that it waits, unless the spec is the same.
func TestResumeRevision(t *testing.T) {
	for name, c := range map[string]struct {
		known, changed bool
		want           string
	}{
		"known":            {true, false, "createRestore prune Resuming"},
		"known, changed":   {true, true, "createRestore prune Resuming"},
		"unknown":          {false, false, "createRestore prune Resuming"},
		"unknown, changed": {false, true, "Hibernated"},
	} {
		s := newSleeper("Always", before("Hibernate")).asleep("memory", true)
		s.Saved.Template.Spec.Hostname = "then"
		s.vm.Spec.Template.Spec.Hostname = "then"
		if c.changed {
			s.vm.Spec.Template.Spec.Hostname = "now"
			s.vm.Generation = 2
		}
		if !c.known {
			s.Saved = nil
		}
		expect(t, name, s.step(), c.want)
		if s.instance == nil {
			expect(t, name, s.vm.Status.ResumeStatus.Reason, "RevisionGone")
			expect(t, name+", again", s.step(), "")
			continue
		}
		expect(t, name, s.instance.Spec.Hostname, "then")
		expect(t, name, s.instance.Annotations[contract.AnnotationVMGeneration], "1")
	}
}

// TestBootDiscards: a VM that boots has its image discarded once there is an instance that does, and
// a claim that was made goes; the user's stays.
func TestBootDiscards(t *testing.T) {
	boot := kubevirtv1.StartBoot
	for _, madeForIt := range []bool{true, false} {
		s := newSleeper("Always", before("Hibernate")).asleep("memory", madeForIt)
		s.vm.Spec.StartStrategy = &boot
		expect(t, "start", s.step(), "create prune Starting")
		expect(t, "phase", s.phase(), "Completed") // until there is the instance for sure
		if events := eventReasons(decide(s.state)); !slices.Equal(events, []string{"ImageDiscarded"}) {
			t.Errorf("events %q", events)
		}
		s.step()
		expect(t, "phase", s.phase(), "")
		if (s.Claims["memory"] == nil) != madeForIt {
			t.Errorf("made %v: the claim is %v", madeForIt, s.Claims["memory"])
		}
	}
	s := newSleeper("Always", own(""), before("Hibernate"))
	kept := hibernation.KeptClaims(s.vm)
	s.asleep(kept[0], false)
	s.Claims[kept[0]] = hibernation.NewClaim(s.view(), kept[0], hibernation.RoomFor(run.NewInstance(s.vm, false)))
	s.vm.Spec.StartStrategy = &boot
	expect(t, "start", s.step(), "claim:"+kept[1]+" create prune Starting")
	expect(t, "then", s.step(), "unclaim:"+kept[0]+" Starting")
}

// TestEvacuation: a VM that is to leave its node is saved though it is to run, and goes on at once;
// one that is to leave no more goes on where it is.
func TestEvacuation(t *testing.T) {
	leave := func(strategy kubevirtv1.RunStrategy) *sleeper {
		s := newSleeper(strategy, before(strategy)).runs(kubevirtv1.PhaseRunning)
		hibernate := kubevirtv1.EvictionHibernate
		s.instance.Spec.EvictionStrategy, s.instance.Status.EvacuationNodeName = &hibernate, "n1"
		return s
	}
	for _, strategy := range []kubevirtv1.RunStrategy{"Always", "Manual", "Once", "RerunOnFailure"} {
		s := leave(strategy)
		for range 3 {
			s.step()
		}
		if h := s.vm.Status.HibernationStatus; h == nil || !h.Evacuation || s.instance.Spec.StopStrategy != "Save" {
			t.Fatalf("%s: %+v, stopStrategy %q", strategy, h, s.instance.Spec.StopStrategy)
		}
		s.Saved = s.vm.Spec.DeepCopy()
		s.isSaved()
		expect(t, "saved", s.step(), "Hibernating delete")
		expect(t, "then", s.step(), "createRestore prune Resuming")
	}
	s := leave("Always")
	for range 3 {
		s.step()
	}
	s.instance.Status.EvacuationNodeName = ""
	expect(t, "no more", s.step(), "Running stop:[]")
	s.step()
	expect(t, "phase", s.phase(), "")
	none := kubevirtv1.EvictionNone
	s = leave("Always")
	s.instance.Spec.EvictionStrategy = &none
	s.step()
	expect(t, "another eviction strategy", s.phase(), "")
}

// TestSuspendToDisk: the guest is asked, nothing is claimed, and the next start is an ordinary one.
func TestSuspendToDisk(t *testing.T) {
	s := newSleeper("Hibernate", before("Always"), func(vm *kubevirtv1.VirtualMachine) {
		vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: "suspendToDisk"}
	}).runs(kubevirtv1.PhaseRunning)
	expect(t, "begin", s.step(), "Hibernating")
	expect(t, "ask", s.step(), "Hibernating stop:SuspendToDisk[]")
	s.instance.Status.Phase, s.instance.Status.Reason = kubevirtv1.PhaseSucceeded, "SuspendedToDisk"
	expect(t, "suspended", s.step(), "Hibernating delete")
	expect(t, "gone", s.step(), "Hibernated")
	*s.vm.Spec.RunStrategy = "Always"
	expect(t, "start", s.step(), "create prune Starting")
	expect(t, "phase", s.phase(), "Completed")
	s.instance.Status.Phase = kubevirtv1.PhaseRunning
	expect(t, "runs", s.step(), "Running")
	expect(t, "phase", s.phase(), "")
}

// TestNotRunning: a VM that does not run has nothing to save, which is told once.
func TestNotRunning(t *testing.T) {
	s := newSleeper("Hibernate", before("Halted"))
	if events := eventReasons(decide(s.state)); !slices.Equal(events, []string{"NotRunning"}) {
		t.Errorf("events %q", events)
	}
	expect(t, "off", s.step(), "Stopped")
	expect(t, "then", s.step(), "")
	if c := kubevirtv1.FindCondition(s.vm.Status.Conditions, kubevirtv1.ConditionHibernated); c == nil || c.Status != "False" || c.Reason != "NotRunning" {
		t.Errorf("condition %+v", c)
	}
}

// TestUnrecorded: an instance that says something about a saved guest that the VM's status has not is
// not let go.
func TestUnrecorded(t *testing.T) {
	at := metav1.NewTime(noon)
	s := newSleeper("Always").runs(kubevirtv1.PhaseRunning)
	s.instance.DeletionTimestamp, s.instance.Status.Phase = &at, kubevirtv1.PhaseSucceeded
	s.instance.Status.SavedImage = imageOn("memory")
	expect(t, "saved, and deleted", s.step(), "Hibernating")
	expect(t, "then", s.step(), "release:1 owners,["+contract.FinalizerInstance+"]")

	s = newSleeper("Always").asleep("memory", false)
	s.step()
	s.instance.DeletionTimestamp, s.instance.Status.Phase = &at, kubevirtv1.PhaseFailed
	s.instance.Status.PhaseTransitionTimestamps = []kubevirtv1.PhaseTransition{{Phase: kubevirtv1.PhaseRunning}}
	expect(t, "went on, and deleted", s.step(), "Stopping")
	expect(t, "phase", s.phase(), "")
	expect(t, "then", s.step(), "release:1 owners,["+contract.FinalizerInstance+"] Stopping")
}

// TestOrphanOfASleeper: an instance that is nobody's is not taken by a VM whose guest is saved: that
// would be discarded.
func TestOrphanOfASleeper(t *testing.T) {
	s := newSleeper("Halted").asleep("memory", false)
	s.instance = released(made(s.vm, kubevirtv1.PhaseRunning, true), s.vm)
	expect(t, "one of nobody", s.step(), "Hibernated")
	expect(t, "phase", s.phase(), "Completed")
}

// TestNoQuota: a VM whose claim for its memory can't be made starts without it.
func TestNoQuota(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	w.full = true
	w.begin("Always")
	w.change(func(vm *kubevirtv1.VirtualMachine) {
		vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSave}
	})
	w.converge(w.is("Running", 1))
	if v := w.instance().Spec.UtilityVolumes; v != nil {
		t.Errorf("its instance waits for %v", v)
	}
	if !slices.ContainsFunc(w.events, func(e string) bool { return strings.Contains(e, "exceeded quota") }) {
		t.Errorf("nobody is told why: %q", w.events)
	}
}

// TestDeletedAsleep: a VM that is deleted leaves what is on the user's claim, and says so.
func TestDeletedAsleep(t *testing.T) {
	at := metav1.NewTime(noon)
	for madeForIt, want := range map[bool]string{true: "patch:Hibernate[]", false: "say:ImageKept patch:Hibernate[]"} {
		s := newSleeper("Hibernate").asleep("memory", madeForIt)
		s.vm.DeletionTimestamp = &at
		expect(t, fmt.Sprint("made ", madeForIt), s.step(), want)
	}
}
