package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// sleeper makes a VM with 1 GiB of memory, observed under the shipped configuration.
type sleeper struct {
	state
}

func newSleeper(strategy kubevirtv1.RunStrategy, options ...func(*kubevirtv1.VirtualMachine)) *sleeper {
	vm := newVM(strategy, options...)
	guest := resource.MustParse("1Gi")
	vm.Spec.Template.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &guest}
	return &sleeper{state{
		vm: vm, Memory: hibernation.Memory{Claims: map[string]*corev1.PersistentVolumeClaim{}, Users: map[string]string{}},
		cluster: configuration.Default(), defaults: noDefaults, now: noon,
	}}
}

// runs gives the VM an instance in a phase.
func (s *sleeper) runs(phase kubevirtv1.Phase) *sleeper {
	s.instance = made(s.vm, phase, phase == kubevirtv1.PhaseRunning)
	return s
}

// step carries out what is decided, as far as a test's objects have it, and says it.
func (s *sleeper) step() string {
	d := decide(s.state)
	for _, a := range d.actions {
		switch a := a.(type) {
		case action.WriteStatus:
			s.vm = s.vm.DeepCopy()
			s.vm.Status = *a.Status
		case action.DirectInstance:
			s.instance = s.instance.DeepCopy()
			s.instance.Spec.StopStrategy, s.instance.Spec.UtilityVolumes = a.Stop, a.Volumes
		case action.CreateClaim:
			claim := a.Claim.DeepCopy()
			claim.UID = types.UID(claim.Name)
			s.Claims[claim.Name] = claim
		case action.DeleteClaim:
			delete(s.Claims, a.Claim.Name)
		case action.CreateInstance:
			s.instance = a.Instance.DeepCopy()
			s.instance.UID = types.UID(fmt.Sprint("instance-", s.now.Unix(), len(s.instance.Spec.UtilityVolumes)))
		case action.DeleteInstance:
			s.instance = nil
		}
	}
	return described(d)
}

// phase is that of the hibernation; empty: there is none.
func (s *sleeper) phase() string {
	if h := s.vm.Status.HibernationStatus; h != nil {
		return h.Phase
	}
	return ""
}

func (s *sleeper) says(status metav1.ConditionStatus, reason string) {
	s.instance.Status.Conditions = []kubevirtv1.Condition{{
		Type: kubevirtv1.ConditionHibernationInProgress, Status: status, Reason: reason, Message: "because of " + reason,
	}}
}

// isSaved ends the instance with its guest saved.
func (s *sleeper) isSaved() {
	s.instance = s.instance.DeepCopy()
	s.instance.Status.Phase = kubevirtv1.PhaseSucceeded
	s.instance.Status.SavedImage = imageOn(s.vm.Status.HibernationStatus.ClaimName)
}

func imageOn(claim string) *kubevirtv1.SavedImage {
	return &kubevirtv1.SavedImage{
		ID: "image-1", ClaimName: claim, Directory: "restore-web-x", SizeBytes: 1<<20 + 1, NodeName: "n1",
		VirtualMachineRevisionName: run.RevisionName(vmUID, 1),
	}
}

// asleep has the guest saved on a claim that was made for that, or is the user's.
func (s *sleeper) asleep(claim string, made bool) *sleeper {
	s.vm.Status.HibernationStatus = &kubevirtv1.HibernationStatus{
		Mode: "Save", Phase: "Completed", ClaimName: claim, ClaimCreated: made, Image: imageOn(claim),
	}
	s.Claims[claim] = hibernation.NewClaim(s.view(), claim, hibernation.RoomFor(run.NewInstance(s.vm, false)))
	s.Claims[claim].UID = "claim-uid"
	if !made {
		s.Claims[claim].Labels, s.Claims[claim].OwnerReferences = nil, nil
	}
	s.Saved = s.vm.Spec.DeepCopy()
	return s
}

func own(name string) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) {
		vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{ClaimName: name}
	}
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestSaveToANewClaim: a VM without a hibernateStrategy is saved to a claim that is made for this
// hibernation alone, and whose name is in the status before it is made.
func TestSaveToANewClaim(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	name := hibernation.OnceClaim(s.vm, metav1.NewTime(noon))
	expect(t, "begin", s.step(), "Hibernating")
	expect(t, "phase", s.phase(), "PVCCreate")
	expect(t, "claim", s.vm.Status.HibernationStatus.ClaimName, name)
	expect(t, "make the claim", s.step(), "claim:"+name)
	expect(t, "ask", s.step(), "Hibernating stop:Save["+name+"]")
	expect(t, "phase", s.phase(), "ReadyToHotPlug")
	s.says("True", "Queued")
	expect(t, "queued", s.step(), "Hibernating")
	expect(t, "phase", s.phase(), "HotPlugFinished")
	s.says("True", "Saving")
	expect(t, "saving", s.step(), "Hibernating")
	expect(t, "phase", s.phase(), "InProgress")
	s.isSaved()
	var notes []string
	for _, a := range decide(s.state).actions {
		if w, is := a.(action.WriteStatus); is {
			for _, e := range w.Events {
				notes = append(notes, e.Note)
			}
		}
	}
	expect(t, "events", strings.Join(notes, "\n"), "Saved the guest's memory to restore-web-x on claim "+name+" (2 MiB)")
	expect(t, "saved", s.step(), "Hibernating delete")
	expect(t, "phase", s.phase(), "Completed")
	expect(t, "gone", s.step(), "Hibernated")
	expect(t, "then", s.step(), "")
	h := s.vm.Status.HibernationStatus
	if h.Image == nil || h.Image.ID != "image-1" || !h.ClaimCreated || h.Reason != "" || h.CompletionTimestamp == nil {
		t.Errorf("hibernationStatus %+v", h)
	}
	if c := kubevirtv1.FindCondition(s.vm.Status.Conditions, kubevirtv1.ConditionHibernated); c == nil || c.Status != "True" || c.Reason != "Saved" {
		t.Errorf("condition Hibernated %+v", c)
	}
}

// TestClaimNames: what a claim is called that is made for a VM's memory has room to spare in names that
// others make of it, and a claim of before that was so is mounted still.
func TestClaimNames(t *testing.T) {
	for _, length := range []int{3, 42, 43, 63, 253} {
		s := newSleeper("Always", own(""), before("Always"))
		s.vm.Name = strings.Repeat("a", length-2) + ".b"
		kept := hibernation.KeptClaims(s.vm)
		end := kept[0][strings.LastIndex(kept[0], "-hibernate-"):]
		for _, name := range append(kept[:2:2], hibernation.OnceClaim(s.vm, metav1.NewTime(noon))) {
			if len(name) > 63 || len(validation.IsDNS1123Subdomain(name)) > 0 {
				t.Errorf("%d: a claim is made of name %s", length, name)
			}
		}
		was := s.vm.Name[:min(length, 200)] + end
		if !slices.Contains(kept, was) {
			t.Errorf("%d: %s of before is not looked for, %q are", length, was, kept)
		}
		s.Claims[was] = hibernation.NewClaim(s.view(), was, hibernation.RoomFor(run.NewInstance(s.vm, false)))
		expect(t, "start", s.step(), "create prune Starting")
		if v := s.instance.Spec.UtilityVolumes; len(v) != 1 || v[0].ClaimName != was {
			t.Errorf("%d: utility volumes %+v, want one on %s", length, v, was)
		}
	}
}

// TestSaveToTheMountedClaim: a VM with a hibernateStrategy has its claim before its instance, which
// mounts it; the save waits for nothing.
func TestSaveToTheMountedClaim(t *testing.T) {
	s := newSleeper("Always", own(""), before("Always"))
	name := hibernation.KeptClaims(s.vm)[0]
	expect(t, "start", s.step(), "claim:"+name+" create prune Starting")
	if v := s.instance.Spec.UtilityVolumes; len(v) != 1 || v[0].ClaimName != name || v[0].Name != hibernation.VolumeName(name) || *v[0].Type != "Hibernation" {
		t.Fatalf("utility volumes %+v", v)
	}
	s.instance.Status.Phase = kubevirtv1.PhaseRunning
	s.instance.Status.PhaseTransitionTimestamps = []kubevirtv1.PhaseTransition{{Phase: kubevirtv1.PhaseRunning}}
	*s.vm.Spec.RunStrategy = "Hibernate"
	expect(t, "begin", s.step(), "Hibernating")
	expect(t, "ask", s.step(), "Hibernating stop:Save["+name+"]")
	s.isSaved()
	expect(t, "saved", s.step(), "Hibernating delete")
	if s.vm.Status.HibernationStatus.ClaimCreated {
		t.Error("the claim that the VM keeps is said to go with the hibernation")
	}
	*s.vm.Spec.RunStrategy = "Always"
	expect(t, "resume", s.step(), "createRestore prune Resuming")
	s.instance.Status.Phase = kubevirtv1.PhaseRunning
	expect(t, "runs", s.step(), "Running")
	if s.Claims[name] == nil {
		t.Error("the claim that the VM keeps is gone")
	}
}

// TestClaims: a claim that does not suit keeps the guest running, and says why; when it suits the
// save goes on.
func TestClaims(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		spoil func(*sleeper, *corev1.PersistentVolumeClaim)
		want  string
	}{
		"is not there": {func(s *sleeper, c *corev1.PersistentVolumeClaim) { delete(s.Claims, c.Name) }, "does not exist"},
		"block":        {func(_ *sleeper, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, "volumeMode Block"},
		"read-only": {func(_ *sleeper, c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadOnlyMany"}
		}, "only be read"},
		"lost": {func(_ *sleeper, c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, "lost its volume"},
		"being deleted": {func(_ *sleeper, c *corev1.PersistentVolumeClaim) {
			at := metav1.NewTime(noon)
			c.DeletionTimestamp = &at
		}, "being deleted"},
		"too small": {func(_ *sleeper, c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		}, "has 1Gi"},
		"another's disk": {func(s *sleeper, c *corev1.PersistentVolumeClaim) { s.Users[c.Name] = "VirtualMachine db" }, "used by VirtualMachine db"},
		"another's memory": {func(_ *sleeper, c *corev1.PersistentVolumeClaim) {
			c.Labels = map[string]string{contract.LabelHibernationOf: "db-uid"}
		}, "another VM"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper("Hibernate", own("mine"), before("Always")).runs(kubevirtv1.PhaseRunning)
			good := hibernation.NewClaim(s.view(), "mine", hibernation.RoomFor(s.instance))
			good.Labels, good.OwnerReferences = nil, nil
			bad := good.DeepCopy()
			s.Claims["mine"] = bad
			c.spoil(s, bad)
			expect(t, "begin", s.step(), "Hibernating")
			expect(t, "check", s.step(), "Running")
			h := s.vm.Status.HibernationStatus
			if h.Phase != "Failed" || h.Reason != "ClaimUnsuitable" || !strings.Contains(h.Message, c.want) || h.Failures != 1 {
				t.Errorf("%+v, want a message with %q", h, c.want)
			}
			if in := kubevirtv1.FindCondition(s.vm.Status.Conditions, kubevirtv1.ConditionHibernationInProgress); in == nil || in.Status != "False" || in.Reason != "ClaimUnsuitable" {
				t.Errorf("condition %+v", in)
			}
			expect(t, "again", s.step(), "")
			s.Claims["mine"], s.Users = good, map[string]string{}
			expect(t, "mended", s.step(), "Hibernating stop:Save[mine]")
		})
	}
}

// onBridge puts the guest on a bridge, with which it can't be saved.
func (s *sleeper) onBridge() *sleeper {
	bridge(&s.instance.Spec)
	return s
}

func bridge(s *kubevirtv1.VirtualMachineInstanceSpec) {
	s.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "a", Bridge: &kubevirtv1.InterfaceBridge{}}}
	s.Networks = []kubevirtv1.Network{{Name: "a", Pod: &kubevirtv1.PodNetwork{}}}
}

func pgClaim() kubevirtv1.Volume {
	return kubevirtv1.Volume{Name: "data", PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pg"},
	}}
}

// TestUnsaveable: a guest that can't be saved goes on, nothing is made, and that is said once.
func TestUnsaveable(t *testing.T) {
	suspends := func(vm *kubevirtv1.VirtualMachine) {
		vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSuspendToDisk}
	}
	for name, c := range map[string]struct {
		how   func(*kubevirtv1.VirtualMachine)
		begin string
		then  string
	}{
		"to a claim that is made": {before("Always"), "Running", ""},
		"to its own claim":        {own("mine"), "Running", ""},
		"to its own disk":         {suspends, "Hibernating", "Hibernating stop:SuspendToDisk[]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper("Hibernate", before("Always"), c.how).runs(kubevirtv1.PhaseRunning).onBridge()
			events := eventReasons(decide(s.state))
			expect(t, "begin", s.step(), c.begin)
			expect(t, "then", s.step(), c.then)
			if c.then != "" {
				return
			}
			h := s.vm.Status.HibernationStatus
			if h.Phase != "Failed" || h.Reason != "GuestCannotBeSaved" || h.Failures != 1 {
				t.Errorf("%+v", h)
			}
			if !strings.Contains(h.Message, "bridge") {
				t.Errorf("message %q", h.Message)
			}
			if !slices.Equal(events, []string{"HibernationFailed"}) {
				t.Errorf("events %q", events)
			}
			if in := kubevirtv1.FindCondition(s.vm.Status.Conditions, kubevirtv1.ConditionHibernationInProgress); in == nil || in.Status != "False" || in.Reason != "GuestCannotBeSaved" {
				t.Errorf("condition %+v", in)
			}
			s.vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSuspendToDisk}
			expect(t, "another mode", s.step(), "Running")
			expect(t, "begins", s.step(), "Hibernating")
			expect(t, "asks", s.step(), "Hibernating stop:SuspendToDisk[]")
		})
	}
}

// TestUnsaveableUnderWay: a save that was begun before it was known that it can't be is undone, and
// leaves nothing.
func TestUnsaveableUnderWay(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	for range 3 {
		s.step()
	}
	s.onBridge()
	s.says("True", "Saving")
	expect(t, "known", s.step(), "Hibernating stop:[]")
	expect(t, "being undone", s.step(), "")
	s.instance.Status.Conditions = nil
	expect(t, "undone", s.step(), "unclaim:"+hibernation.OnceClaim(s.vm, metav1.NewTime(noon))+" Running")
	expect(t, "refused", s.step(), "Running")
	expect(t, "phase", s.phase(), "Failed")
	expect(t, "then", s.step(), "")
}

// TestUnsaveableVMs: a VM that can't be saved is evicted as if it had no strategy, and mounts no claim
// for its memory.
func TestUnsaveableVMs(t *testing.T) {
	hibernates := kubevirtv1.EvictionHibernate
	for name, c := range map[string]struct {
		spoil func(*kubevirtv1.VirtualMachineInstanceSpec)
		want  string
		saves bool
	}{
		"one that can": {func(*kubevirtv1.VirtualMachineInstanceSpec) {}, "claim:", true},
		"on a bridge":  {bridge, "create", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper("Always", before("Always"))
			s.cluster.EvictionStrategy = hibernates
			template := &s.vm.Spec.Template.Spec
			template.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "data"}}
			template.Volumes = []kubevirtv1.Volume{pgClaim()}
			c.spoil(template)
			s.volumes = []volume{{name: "pg", claim: bound}}
			if got := s.step(); !strings.HasPrefix(got, c.want) {
				t.Errorf("starts with %q, want %q", got, c.want)
			}
			s.instance.Status.Phase, s.instance.Status.EvacuationNodeName = kubevirtv1.PhaseRunning, "n1"
			s.step()
			if saves := s.phase() != ""; saves != c.saves {
				t.Errorf("evicted: is saved %v, want %v", saves, c.saves)
			}
		})
	}
}

// TestCancel: whatever phase a hibernation is in, another strategy has the guest go on, and nothing is
// left of it.
func TestCancel(t *testing.T) {
	for phase := 0; phase <= 5; phase++ {
		for _, strategy := range []kubevirtv1.RunStrategy{"Always", "Once", "Manual", "RerunOnFailure"} {
			s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
			for range min(phase, 3) {
				s.step()
			}
			if phase > 3 {
				s.says(map[int]metav1.ConditionStatus{4: "True", 5: "False"}[phase], "Saving")
				s.step()
			}
			*s.vm.Spec.RunStrategy = strategy
			if asked := s.instance.Spec.StopStrategy; (asked == "Save") != (phase >= 3) {
				t.Fatalf("phase %d: stopStrategy %q", phase, asked)
			}
			for range 4 {
				s.step()
				if s.instance == nil {
					t.Fatalf("phase %d, %s: the instance is gone", phase, strategy)
				}
			}
			if phase == 4 {
				if s.phase() == "" || len(s.Claims) == 0 {
					t.Errorf("phase %d, %s: it is forgotten while the save is under way", phase, strategy)
				}
				s.instance.Status.Conditions = nil
				s.step()
			}
			if s.instance.Spec.StopStrategy != "" || len(s.instance.Spec.UtilityVolumes) > 0 || s.phase() != "" || len(s.Claims) > 0 {
				t.Errorf("phase %d, %s: left are stopStrategy %q, %v, %q, %d claims", phase, strategy, s.instance.Spec.StopStrategy, s.instance.Spec.UtilityVolumes, s.phase(), len(s.Claims))
			}
			if got := s.vm.Status.PrintableStatus; got != "Running" {
				t.Errorf("phase %d, %s: %s", phase, strategy, got)
			}
		}
	}
}

// TestCancelledTooLate: a guest that is saved as its hibernation is cancelled is not lost: it goes on
// from there.
func TestCancelledTooLate(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	for range 3 {
		s.step()
	}
	*s.vm.Spec.RunStrategy = "Always"
	s.Saved = s.vm.Spec.DeepCopy()
	s.isSaved()
	expect(t, "saved", s.step(), "Hibernating delete")
	expect(t, "then", s.step(), "createRestore prune Resuming")
}

// TestHaltWhileSaving: Halted ends the save and shuts the guest down.
func TestHaltWhileSaving(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	for range 3 {
		s.step()
	}
	*s.vm.Spec.RunStrategy = "Halted"
	expect(t, "halted", s.step(), "Stopping stop:[] delete")
	expect(t, "then", s.step(), "unclaim:"+hibernation.OnceClaim(s.vm, metav1.NewTime(noon))+" Stopped")
}

// TestGuestEndsWhileSaving: a guest that ended is not saved, and the VM is Stopped.
func TestGuestEndsWhileSaving(t *testing.T) {
	for _, phase := range []kubevirtv1.Phase{kubevirtv1.PhaseSucceeded, kubevirtv1.PhaseFailed} {
		s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
		for range 3 {
			s.step()
		}
		s.instance.Status.Phase = phase
		expect(t, "ended", s.step(), "unclaim:"+hibernation.OnceClaim(s.vm, metav1.NewTime(noon))+" Stopped delete")
		expect(t, "phase", s.phase(), "")
	}
}

// TestGuestEndsWhileSavingToItsClaim: a claim that the VM keeps may have a whole image of a guest that
// was killed as it was saved, and goes; the user's stays.
func TestGuestEndsWhileSavingToItsClaim(t *testing.T) {
	for _, mine := range []bool{true, false} {
		named := ""
		if !mine {
			named = "memory"
		}
		s := newSleeper("Always", own(named))
		name := named
		if mine {
			name = hibernation.KeptClaims(s.vm)[0]
		}
		s.Claims[name] = hibernation.NewClaim(s.view(), name, 10<<30)
		s.Claims[name].UID = "claim-uid"
		s.runs(kubevirtv1.PhaseRunning)
		s.instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{hibernation.UtilityVolume(name)}
		*s.vm.Spec.RunStrategy = "Hibernate"
		for range 3 {
			s.step()
		}
		expect(t, "claim", s.vm.Status.HibernationStatus.ClaimName, name)
		s.instance.Status.Phase = kubevirtv1.PhaseFailed
		want := "Stopped delete"
		if mine {
			want = "unclaim:" + name + " " + want
		}
		expect(t, "ended", s.step(), want)
	}
}

// TestGuestEndedEvent: it has the instance's word, and says what becomes of the VM.
func TestGuestEndedEvent(t *testing.T) {
	instanceSays := func(s *sleeper) { s.says("False", "GuestEnded") }
	for name, c := range map[string]struct {
		ended    func(*sleeper)
		strategy kubevirtv1.RunStrategy
		want     string
	}{
		"stays stopped":      {instanceSays, "Hibernate", "GuestEnded: because of GuestEnded; nothing is saved, and the VM stays stopped"},
		"starts":             {instanceSays, "Always", "GuestEnded: because of GuestEnded; it starts as its run strategy says"},
		"says nothing":       {func(*sleeper) {}, "Hibernate", "GuestEnded: the guest ended before it was saved; nothing is saved, and the VM stays stopped"},
		"says another thing": {func(s *sleeper) { s.says("True", "Saving") }, "Hibernate", "GuestEnded: the guest ended before it was saved; nothing is saved, and the VM stays stopped"},
		"is gone":            {func(s *sleeper) { s.instance = nil }, "Hibernate", "GuestEnded: the guest ended before it was saved; nothing is saved, and the VM stays stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
			for range 3 {
				s.step()
			}
			s.instance.Status.Phase = kubevirtv1.PhaseFailed
			*s.vm.Spec.RunStrategy = c.strategy
			c.ended(s)
			var notes []string
			for _, a := range decide(s.state).actions {
				if w, is := a.(action.WriteStatus); is {
					for _, e := range w.Events {
						notes = append(notes, e.Note)
					}
				}
			}
			if !slices.Equal(notes, []string{c.want}) {
				t.Errorf("events %q, want %q", notes, c.want)
			}
		})
	}
}

// TestSaveFails: what the instance says of a failure is the VM's; its next try is another attempt.
func TestSaveFails(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	for range 3 {
		s.step()
	}
	for n := int32(1); n <= 3; n++ {
		s.says("True", "Saving")
		expect(t, "saving", s.step(), "Hibernating")
		s.says("False", "NoSpace")
		s.now = s.now.Add(time.Minute)
		d := decide(s.state)
		if events := eventReasons(d); !slices.Equal(events, []string{"HibernationFailed"}) {
			t.Errorf("events %q", events)
		}
		expect(t, "failed", s.step(), "Running")
		if h := s.vm.Status.HibernationStatus; h.Phase != "Failed" || h.Reason != "NoSpace" || h.Failures != n || h.Message != "because of NoSpace" {
			t.Errorf("%+v", h)
		}
		expect(t, "again", s.step(), "")
	}
	if s.instance.Spec.StopStrategy != "Save" {
		t.Error("the instance is not to try again")
	}
}

func eventReasons(d decision) (all []string) {
	for _, a := range d.actions {
		if w, is := a.(action.WriteStatus); is {
			for _, e := range w.Events {
				all = append(all, e.Reason)
			}
		}
	}
	return all
}

// TestFailuresTimeOut: attempts that fail soon are one hibernation, which takes too long.
func TestFailuresTimeOut(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	told := 0
	for ; s.now.Before(noon.Add(20 * time.Minute)); s.now = s.now.Add(10 * time.Second) {
		for _, attempt := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} { // it begins, and fails
			for _, reason := range eventReasons(decide(s.state)) {
				if reason == "HibernationTimeout" {
					told++
				}
			}
			s.step()
			s.says(attempt, "SaveFailed")
		}
		if late := s.now.Sub(noon) >= 500*time.Second; late != (told == 1) {
			t.Fatalf("after %v %d events tell of the time", s.now.Sub(noon), told)
		}
	}
}

// TestNoWarning: nothing is said of the time where no limit is set.
func TestNoWarning(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	s.cluster.Hibernation.WarningTimeoutSeconds = 0
	for range 5 {
		if events := eventReasons(decide(s.state)); slices.Contains(events, "HibernationTimeout") {
			t.Errorf("events %q", events)
		}
		s.step()
		s.now = s.now.Add(time.Hour)
	}
}

// TestWarningTimeout: an attempt that takes too long is told of once, and goes on.
func TestWarningTimeout(t *testing.T) {
	s := newSleeper("Hibernate", before("Always")).runs(kubevirtv1.PhaseRunning)
	for range 3 {
		s.step()
	}
	if d := decide(s.state); !d.again.Equal(noon.Add(500 * time.Second)) {
		t.Errorf("looks again at %v", d.again)
	}
	s.now = noon.Add(500 * time.Second)
	if events := eventReasons(decide(s.state)); !slices.Equal(events, []string{"HibernationTimeout"}) {
		t.Errorf("events %q", events)
	}
	expect(t, "late", s.step(), "Hibernating")
	expect(t, "again", s.step(), "")
	s.isSaved()
	s.step()
	if h := s.vm.Status.HibernationStatus; h.Reason != "" || h.Message != "" {
		t.Errorf("after the success: %+v", h)
	}
}
