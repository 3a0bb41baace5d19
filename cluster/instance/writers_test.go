package instance

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// diskOn gives an instance a disk on a claim, as changes have it.
func diskOn(claim string, changes ...func(*kubevirtv1.Disk, *kubevirtv1.Volume)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		d := kubevirtv1.Disk{Name: "on-" + claim, Disk: new(kubevirtv1.DiskTarget)}
		v := kubevirtv1.Volume{Name: d.Name, PersistentVolumeClaim: new(kubevirtv1.PersistentVolumeClaimSource)}
		v.PersistentVolumeClaim.ClaimName = claim
		for _, change := range changes {
			change(&d, &v)
		}
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, d)
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v)
	}
}

func readOnlyDisk(d *kubevirtv1.Disk, _ *kubevirtv1.Volume)  { d.Disk.ReadOnly = true }
func readOnlyClaim(_ *kubevirtv1.Disk, v *kubevirtv1.Volume) { v.PersistentVolumeClaim.ReadOnly = true }
func cdrom(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) {
	d.Disk, d.CDROM = nil, new(kubevirtv1.CDROMTarget)
}
func lun(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) {
	d.Disk, d.LUN = nil, new(kubevirtv1.LUNTarget)
}
func noTarget(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) { d.Disk = nil }
func dataVolume(_ *kubevirtv1.Disk, v *kubevirtv1.Volume) {
	v.DataVolume, v.PersistentVolumeClaim = &kubevirtv1.DataVolumeSource{Name: v.PersistentVolumeClaim.ClaimName}, nil
}
func ephemeral(_ *kubevirtv1.Disk, v *kubevirtv1.Volume) {
	v.Ephemeral = &kubevirtv1.EphemeralSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.PersistentVolumeClaim.ClaimName}}
	v.PersistentVolumeClaim = nil
}

// another is an instance of another VM, made some time after this one.
func another(after time.Duration, changes ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "db", UID: "uid-0002", CreationTimestamp: metav1.NewTime(testTime.Add(after)),
	}}
	for _, f := range changes {
		f(vmi)
	}
	return vmi
}

func waitingFor(reason string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Conditions = []kubevirtv1.Condition{condition(kubevirtv1.ConditionSynchronized, metav1.ConditionFalse, reason, "so")}
	}
}

// TestClaimInUse: whoever has a pod writes to its claims, of two without one the older goes first, and readers
// are in nobody's way.
func TestClaimInUse(t *testing.T) {
	const later, earlier = time.Minute, -time.Minute
	deleted := func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{Time: testTime} }
	uid := func(uid types.UID) func(*kubevirtv1.VirtualMachineInstance) {
		return func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.UID = uid }
	}
	for name, c := range map[string]struct {
		own    func(*kubevirtv1.VirtualMachineInstance)
		other  *kubevirtv1.VirtualMachineInstance
		hasPod bool
		waits  bool
	}{
		"nobody else's":                           {diskOn("a"), another(earlier, diskOn("b")), true, false},
		"it has a pod, and is younger":            {diskOn("a"), another(later, diskOn("a")), true, true},
		"a DataVolume's claim":                    {diskOn("a", dataVolume), another(later, diskOn("a")), true, true},
		"a LUN":                                   {diskOn("a", lun), another(later, diskOn("a", noTarget)), true, true},
		"it is read by the other, a disk":         {diskOn("a"), another(earlier, diskOn("a", readOnlyDisk)), true, false},
		"it is read by the other, a claim":        {diskOn("a"), another(earlier, diskOn("a", readOnlyClaim)), true, false},
		"it is read by the other, a CD-ROM":       {diskOn("a"), another(earlier, diskOn("a", cdrom)), true, false},
		"it is read by the other, below overlays": {diskOn("a"), another(earlier, diskOn("a", ephemeral)), true, false},
		"it is only read":                         {diskOn("a", readOnlyDisk), another(earlier, diskOn("a")), true, false},
		"neither has a pod, older":                {diskOn("a"), another(earlier, diskOn("a")), false, true},
		"neither has a pod, younger":              {diskOn("a"), another(later, diskOn("a")), false, false},
		"neither has a pod, the same second":      {diskOn("a"), another(0, diskOn("a"), uid("uid-0000")), false, true},
		"the same second, by the UID":             {diskOn("a"), another(0, diskOn("a"), uid("uid-0002")), false, false},
		"older, and is deleted":                   {diskOn("a"), another(earlier, diskOn("a"), deleted), false, false},
		"older, and lacks another claim":          {diskOn("a"), another(earlier, diskOn("a"), waitingFor(reasonClaimNotFound)), false, false},
		"older, and waits for the same claim":     {diskOn("a"), another(earlier, diskOn("a"), waitingFor(reasonClaimInUse)), false, true},
		"older, and may wait for another claim":   {diskOn("a"), another(earlier, diskOn("a"), diskOn("b"), waitingFor(reasonClaimInUse)), false, false},
		"older, is deleted and has a pod":         {diskOn("a"), another(earlier, diskOn("a"), deleted), true, true},
	} {
		own := newScene().change(c.own, func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.CreationTimestamp = metav1.NewTime(testTime) })
		got := claimInUse(own.instance, []writer{{instance: c.other, started: c.hasPod}})
		if (got != nil) != c.waits {
			t.Errorf("%s: %v, want that it waits: %v", name, got, c.waits)
		}
		if got != nil && !strings.Contains(got.message, "claim a is in use by VM db") {
			t.Errorf("%s: %q does not name claim and VM", name, got.message)
		}
	}
}

// TestWritersNeverWaitInACircle: whatever the claims, of all instances without pods one at least waits for none of the others.
func TestWritersNeverWaitInACircle(t *testing.T) {
	sets := [][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "c"}, {"a", "c"}, {"c", "a", "b"}}
	reasons := []string{"", reasonClaimInUse, reasonClaimNotFound}
	var all []*kubevirtv1.VirtualMachineInstance
	for i, claims := range sets {
		for j, reason := range reasons {
			vmi := another(time.Duration((i*5+j*3)%4) * time.Second)
			vmi.UID, vmi.Name = types.UID(rune('a'+i*len(reasons)+j)), string(rune('a'+i*len(reasons)+j))
			for _, claim := range claims {
				diskOn(claim)(vmi)
			}
			if reason != "" {
				waitingFor(reason)(vmi)
			}
			all = append(all, vmi)
		}
	}
	for len(all) > 0 {
		free := slices.IndexFunc(all, func(vmi *kubevirtv1.VirtualMachineInstance) bool {
			var others []writer
			for _, other := range all {
				if other != vmi {
					others = append(others, writer{instance: other})
				}
			}
			return claimInUse(vmi, others) == nil
		})
		if free < 0 {
			t.Fatalf("%d instances wait for each other", len(all))
		}
		all = slices.Delete(all, free, free+1)
	}
}

// TestPodClaims: the pod of a VM writes to its claims, but for those that it mounts read-only; others' pods are
// no VMs'.
func TestPodClaims(t *testing.T) {
	p := newScene().withPod().pod.Pod
	for name, readOnly := range map[string]bool{"written": false, "read": true} {
		v := corev1.Volume{Name: name}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	if got := podClaims(p); !slices.Equal(got, []string{"written"}) {
		t.Errorf("a VM's pod writes to %q, want the claim that it does not mount read-only", got)
	}
	delete(p.Labels, contract.LabelApp)
	if got := podClaims(p); len(got) > 0 {
		t.Errorf("a pod that is no VM's writes to %q", got)
	}
}

// dbKey is another VM's instance.
var dbKey = types.NamespacedName{Namespace: namespace, Name: "db"}

// writesTo has pods mount the claims of their instances' disks.
func (w *world) writesTo(r *Reconciler) *Reconciler {
	bare := r.Pod
	r.Pod = func(vmi *kubevirtv1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
		p, err := bare(vmi, claims)
		if err == nil {
			for _, claim := range claimNames(vmi) {
				v := corev1.Volume{Name: claim}
				v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
				p.Spec.Volumes = append(p.Spec.Volumes, v)
			}
		}
		return p, err
	}
	return r
}

func (w *world) addOther() {
	w.must(w.server.Create(w.t.Context(), another(0, diskOn("shared"), func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.UID, vmi.CreationTimestamp, vmi.Finalizers = w.uid(), metav1.NewTime(w.now), []string{contract.FinalizerInstance}
	})))
}

// other reconciles the other VM, and returns its condition and whether it has a pod.
func (w *world) other(r *Reconciler) (c *kubevirtv1.Condition, started bool) {
	w.t.Helper()
	if _, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: dbKey}); err != nil {
		w.t.Fatal(err)
	}
	vmi, err := get(w.t.Context(), w.server, dbKey, new(kubevirtv1.VirtualMachineInstance))
	w.must(err)
	started = slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return uidOf(p.Labels) == vmi.UID })
	return find(vmi.Status.Conditions, kubevirtv1.ConditionSynchronized), started
}

func (w *world) wantHeld(r *Reconciler, by string) {
	w.t.Helper()
	c, started := w.other(r)
	if started {
		w.t.Fatalf("two VMs have pods with one claim (%s)", by)
	}
	if c == nil || c.Reason != reasonClaimInUse || !strings.Contains(c.Message, by) {
		w.t.Errorf("condition %+v, want %s that names %q", c, reasonClaimInUse, by)
	}
}

// TestClaimHasOneWriter: a VM waits while another one with its claim may run, says so, and starts when that has
// ended. A cache that does not have the other's pod yet lets none through.
func TestClaimHasOneWriter(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addInstance(diskOn("shared"))
	before := w.snapshot()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.addOther()
	w.wantHeld(w.writesTo(w.controller()), "claim shared is in use by VM web")

	// By a cache that has neither the status nor the pod of the other one this one goes first.
	stale, err := get(t.Context(), w.server, dbKey, new(kubevirtv1.VirtualMachineInstance))
	w.must(err)
	stale.ResourceVersion, stale.Status, stale.CreationTimestamp = "", kubevirtv1.VirtualMachineInstanceStatus{}, metav1.NewTime(w.instance().CreationTimestamp.Add(-time.Minute))
	w.must(before.Create(t.Context(), stale))
	w.cached = before
	if _, err := w.writesTo(w.controller()).Reconcile(t.Context(), reconcile.Request{NamespacedName: dbKey}); err != nil {
		t.Log(err) // its status can't be written, as the cache is behind
	}
	if n := len(w.pods()); n != 1 {
		t.Fatalf("%d pods have one claim, as the cache was behind", n)
	}
	w.cached = nil

	w.deleteInstance()
	w.until("it is gone", w.in("gone"))
	if c, started := w.other(w.writesTo(w.controller())); !started || c != nil {
		t.Errorf("when the claim is free: started %v, condition %+v", started, c)
	}
}

// TestClaimOfAPodThatIsLeft: the pod of an instance that is gone writes until it is known to have ended.
func TestClaimOfAPodThatIsLeft(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addInstance(diskOn("shared"))
	r := w.writesTo(w.controller())
	w.reconcile(r)
	w.forgetInstance()
	w.addOther()
	w.wantHeld(r, "pod virt-launcher-web")
	p := w.pods()[0].DeepCopy()
	p.Finalizers = nil
	w.must(w.server.Update(t.Context(), p))
	if c, started := w.other(r); !started || c != nil {
		t.Errorf("when that has ended: started %v, condition %+v", started, c)
	}
}

// TestOneClaimAtATime: pods with one claim are not made at the same time, others are.
func TestOneClaimAtATime(t *testing.T) {
	var l claimLocks
	done, alone := l.begin("shop", []string{"a", "b"})
	if !alone {
		t.Fatal("nobody has a claim")
	}
	for _, c := range []struct {
		namespace string
		claims    []string
		alone     bool
	}{{"shop", []string{"c", "b"}, false}, {"shop", []string{"c"}, true}, {"other", []string{"a"}, true}, {"shop", nil, true}} {
		other, alone := l.begin(c.namespace, c.claims)
		if alone != c.alone {
			t.Errorf("%s %v: alone %v, want %v", c.namespace, c.claims, alone, c.alone)
		}
		if alone {
			other()
		}
	}
	done()
	if _, alone := l.begin("shop", []string{"b", "a"}); !alone {
		t.Error("the claims were not given back")
	}
}

// TestClaimOfAVanishedPod: a VM writes whose status names a pod that is not there, until it has ended; one that has
// ended is in nobody's way.
func TestClaimOfAVanishedPod(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addInstance(diskOn("shared"))
	r := w.writesTo(w.controller())
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.removePods()
	w.addOther()
	older, err := get(t.Context(), w.server, dbKey, new(kubevirtv1.VirtualMachineInstance))
	w.must(err)
	older.CreationTimestamp = metav1.NewTime(w.instance().CreationTimestamp.Add(-time.Minute))
	w.must(w.server.Update(t.Context(), older))
	w.wantHeld(r, "claim shared is in use by VM web")
	w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
	if !w.told(2*confirmAgain, w.in(kubevirtv1.PhaseFailed)) {
		t.Fatalf("phase %s when the guest has ended", w.phase())
	}
	if c, started := w.other(r); !started || c != nil {
		t.Errorf("when that has ended: started %v, condition %+v", started, c)
	}
}

// TestPodsAreMadeAlone: while a pod is made no other is made with one of its claims.
func TestPodsAreMadeAlone(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addOther()
	r := w.writesTo(w.controller())
	done, _ := r.creating.begin(namespace, []string{"shared"})
	w.wantHeld(r, "another VM with a claim of this one's is being started")
	done()
	bare, asked := r.Pod, false
	r.Pod = func(vmi *kubevirtv1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
		asked = true
		if _, alone := r.creating.begin(namespace, []string{"shared"}); alone {
			t.Error("while its pod is made its claim is anybody's")
		}
		return bare(vmi, claims)
	}
	if c, started := w.other(r); !asked || !started || c != nil {
		t.Errorf("when nobody else is started: started %v, condition %+v", started, c)
	}
}
