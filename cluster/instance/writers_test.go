package instance

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestRestartPassesWhoWaits: a VM that is started again gets its pod while those run that it gets on with, though another one
// waits for their end; a VM that was made after that one asked waits for it; and of VMs that wait for nobody who runs the
// older one goes first.
func TestRestartPassesWhoWaits(t *testing.T) {

	for name, c := range map[string]struct {
		runs, waits, own func(*kubevirtv1.VirtualMachineInstance)
		born             time.Duration // the VM, after the one that waits was started
		starts           bool
	}{
		"a reader, older":                        {scene.DiskOn("a", scene.Ephemeral), scene.DiskOn("a"), scene.DiskOn("a", scene.Ephemeral), -time.Hour, true},
		"a reader, younger":                      {scene.DiskOn("a", scene.Ephemeral), scene.DiskOn("a"), scene.DiskOn("a", scene.Ephemeral), time.Second, false},
		"it shares, older":                       {scene.DiskOn("a", scene.Shareable), scene.DiskOn("a"), scene.DiskOn("a", scene.Shareable), -time.Hour, true},
		"a writer, older":                        {scene.DiskOn("a", scene.Ephemeral), scene.DiskOn("a"), scene.DiskOn("a"), -time.Hour, false},
		"nobody runs":                            {scene.DiskOn("b"), scene.DiskOn("a"), scene.DiskOn("a", scene.Ephemeral), -time.Hour, false},
		"the other one waits for an other claim": {scene.DiskOn("b"), scene.Both(scene.DiskOn("a"), scene.DiskOn("b")), scene.Both(scene.DiskOn("a", scene.Ephemeral), scene.DiskOn("c")), time.Second, true},
	} {
		w := newWorld(t)
		w.restarts = false
		for _, claim := range []string{"a", "b", "c"} {
			w.addClaim(claim)
		}
		add := func(name string, after time.Duration, change ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
			vmi := scene.Another(after, append(change, func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Name, vmi.UID = name, w.uid() })...)
			w.must(w.server.Create(t.Context(), vmi))
			return vmi
		}
		r := w.writesTo(w.controller())
		running := add("runs", -2*time.Hour, c.runs)
		running.Status.Phase, running.Status.ActivePods = kubevirtv1.PhaseRunning, map[types.UID]string{"uid-pod": "node"}
		w.must(w.server.Status().Update(t.Context(), running))
		waits := add("waits", 0, c.waits, scene.WaitingFor(condition.ReasonClaimInUse))
		w.must(w.server.Status().Update(t.Context(), waits))

		vm := new(kubevirtv1.VirtualMachine)
		vm.Namespace, vm.Name, vm.UID, vm.CreationTimestamp = scene.Namespace, "db", "uid-vm", metav1.NewTime(scene.Time.Add(c.born))
		w.must(w.server.Create(t.Context(), vm))
		add("db", time.Minute, c.own, func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Finalizers = []string{contract.FinalizerInstance}
			vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachine"})}
		})
		if condition, started := w.other(r); started != c.starts {
			t.Errorf("%s: started %v, want %v; condition %+v", name, started, c.starts, condition)
		}
	}
}

// dbKey is another VM's instance.
var dbKey = types.NamespacedName{Namespace: scene.Namespace, Name: "db"}

// writesTo has pods mount the claims of their instances' disks.
func (w *world) writesTo(r *Reconciler) *Reconciler {
	bare := r.Pod
	r.Pod = func(vmi *kubevirtv1.VirtualMachineInstance, of map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
		p, err := bare(vmi, of)
		if err == nil {
			for _, claim := range claims.Names(vmi) {
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
	w.must(w.server.Create(w.t.Context(), scene.Another(0, scene.DiskOn("shared"), func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.UID, vmi.CreationTimestamp, vmi.Finalizers = w.uid(), metav1.NewTime(w.now), []string{contract.FinalizerInstance}
	})))
}

// other reconciles the other VM, and returns its condition and whether it has a pod.
func (w *world) other(r *Reconciler) (c *kubevirtv1.Condition, started bool) {
	w.t.Helper()
	if _, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: dbKey}); err != nil {
		w.t.Fatal(err)
	}
	vmi, err := observe.Get(w.t.Context(), w.server, dbKey, new(kubevirtv1.VirtualMachineInstance))
	w.must(err)
	started = slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return view.UIDOf(p.Labels) == vmi.UID })
	return condition.Find(vmi.Status.Conditions, kubevirtv1.ConditionSynchronized), started
}

func (w *world) wantHeld(r *Reconciler, by string) {
	w.t.Helper()
	c, started := w.other(r)
	if started {
		w.t.Fatalf("two VMs have pods with one claim (%s)", by)
	}
	if c == nil || c.Reason != condition.ReasonClaimInUse || !strings.Contains(c.Message, by) {
		w.t.Errorf("condition %+v, want %s that names %q", c, condition.ReasonClaimInUse, by)
	}
}

// TestClaimHasOneWriter: a VM waits while another one with its claim may run, says so, and starts when that has
// ended. A cache that does not have the other's pod yet lets none through.
func TestClaimHasOneWriter(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addInstance(scene.DiskOn("shared"))
	before := w.snapshot()
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.addOther()
	w.wantHeld(w.writesTo(w.controller()), "claim shared is in use by VM web")

	// By a cache that has neither the status nor the pod of the other one this one goes first.
	stale, err := observe.Get(t.Context(), w.server, dbKey, new(kubevirtv1.VirtualMachineInstance))
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
	w.addInstance(scene.DiskOn("shared"))
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

// TestClaimOfAVanishedPod: a VM writes whose status names a pod that is not there, until it has ended; one that has
// ended is in nobody's way.
func TestClaimOfAVanishedPod(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addInstance(scene.DiskOn("shared"))
	r := w.writesTo(w.controller())
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.removePods()
	w.addOther()
	older, err := observe.Get(t.Context(), w.server, dbKey, new(kubevirtv1.VirtualMachineInstance))
	w.must(err)
	older.CreationTimestamp = metav1.NewTime(w.instance().CreationTimestamp.Add(-time.Minute))
	w.must(w.server.Update(t.Context(), older))
	w.wantHeld(r, "claim shared is in use by VM web")
	w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
	if !w.within(2*confirmAgain, w.in(kubevirtv1.PhaseFailed)) {
		t.Fatalf("phase %s when the guest has ended", w.phase())
	}
	if c, started := w.other(r); !started || c != nil {
		t.Errorf("when that has ended: started %v, condition %+v", started, c)
	}
}

func writesShared() []claimuse.Use { return []claimuse.Use{{Claim: "shared", Writes: true}} }

// TestPodsAreMadeAlone: while a pod is made no other is made with one of its claims.
func TestPodsAreMadeAlone(t *testing.T) {
	w := newWorld(t)
	w.restarts = false
	w.addClaim("shared")
	w.addOther()
	r := w.writesTo(w.controller())
	done, _ := r.Making.Begin(scene.Namespace, writesShared())
	w.wantHeld(r, "another pod with a claim of this VM's is being made")
	done()
	bare, asked := r.Pod, false
	r.Pod = func(vmi *kubevirtv1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
		asked = true
		if _, alone := r.Making.Begin(scene.Namespace, writesShared()); alone {
			t.Error("while its pod is made its claim is anybody's")
		}
		return bare(vmi, claims)
	}
	if c, started := w.other(r); !asked || !started || c != nil {
		t.Errorf("when nobody else is started: started %v, condition %+v", started, c)
	}
}

// copying is a pod that fills a claim from the claim "shared".
func copying() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: scene.Namespace, Name: "importer-copy", UID: "uid-copy", Labels: map[string]string{contract.LabelApp: contract.LabelAppImporter}}}
	for volume, claim := range map[string]string{launcher.VolumeSource: "shared", launcher.VolumeTarget: "copy"} {
		v := corev1.Volume{Name: volume}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	return p
}

// TestClaimIsCopied: a VM waits while a pod copies a claim that it writes to, also while the cache does not have that pod,
// and one that only reads the claim doesn't.
func TestClaimIsCopied(t *testing.T) {
	for name, c := range map[string]struct {
		reads, unseen bool
		waits         bool
		ends          corev1.PodPhase
	}{
		"the VM writes":                        {waits: true, ends: corev1.PodSucceeded},
		"the VM writes, and the copy fails":    {waits: true, ends: corev1.PodFailed},
		"the VM writes, and the cache is late": {unseen: true, waits: true},
		"the VM reads":                         {reads: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.restarts = false
			w.addClaim("shared")
			if disk := scene.DiskOn("shared"); c.reads {
				w.addInstance(scene.DiskOn("shared", scene.ReadOnlyDisk))
			} else {
				w.addInstance(disk)
			}
			if c.unseen {
				w.cached = w.snapshot()
			}
			p := copying()
			w.must(w.server.Create(t.Context(), p))
			r := w.controller()
			w.reconcile(r)
			started := func() bool {
				return slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return view.InstanceOf(&p) != "" })
			}
			if got := started(); got == c.waits {
				t.Fatalf("while the claim is copied: started %v, want %v", got, !c.waits)
			}
			if !c.waits || c.unseen {
				return
			}
			got := condition.Find(w.instance().Status.Conditions, kubevirtv1.ConditionSynchronized)
			if got == nil || got.Reason != condition.ReasonClaimInUse || !strings.Contains(got.Message, "claim shared is in use by pod importer-copy") {
				t.Errorf("condition %+v, want %s that names the pod", got, condition.ReasonClaimInUse)
			}
			p.Status.Phase = c.ends
			w.must(w.server.Status().Update(t.Context(), p))
			if woken := r.ofUser(t.Context(), p); len(woken) != 1 {
				t.Errorf("the end of the copy wakes %v, want the VM that waits", woken)
			}
			w.reconcile(r)
			if !started() {
				t.Error("the copy has ended, and the VM waits")
			}
		})
	}
}

// TestOfUser: those look again that may have waited, and nobody who runs, or whom the other one's use does not concern.
func TestOfUser(t *testing.T) {
	add := func(w *world, name string, phase kubevirtv1.Phase, disk func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
		vmi := scene.Another(0, disk, func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Name, vmi.UID, vmi.Status.Phase = name, w.uid(), phase
		})
		w.must(w.server.Create(t.Context(), vmi))
		w.must(w.server.Status().Update(t.Context(), vmi))
		return vmi
	}
	w := newWorld(t)
	r := w.controller()
	writer := add(w, "writer", kubevirtv1.PhaseRunning, scene.DiskOn("shared"))
	reader := add(w, "reader", kubevirtv1.PhaseRunning, scene.DiskOn("shared", scene.Ephemeral))
	add(w, "waits-to-write", kubevirtv1.PhasePending, scene.DiskOn("shared"))
	add(w, "waits-to-read", "", scene.DiskOn("shared", scene.ReadOnlyDisk))
	add(w, "elsewhere", "", scene.DiskOn("other"))
	podOf := func(vmi *kubevirtv1.VirtualMachineInstance) *corev1.Pod {
		p, err := w.writesTo(w.controller()).Pod(vmi, nil)
		w.must(err)
		return p
	}
	gone := podOf(reader).DeepCopy()
	gone.Labels[contract.LabelCreatedBy] = "uid-gone"
	for name, c := range map[string]struct {
		o    client.Object
		want []string
	}{
		"a writer":                     {writer, []string{"waits-to-read", "waits-to-write"}},
		"a reader":                     {reader, []string{"waits-to-write"}},
		"a writer's pod":               {podOf(writer), []string{"waits-to-read", "waits-to-write"}},
		"a reader's pod":               {podOf(reader), []string{"waits-to-write"}},
		"a pod whose instance is gone": {gone, []string{"waits-to-read", "waits-to-write"}},
		"a pod that copies":            {copying(), []string{"waits-to-write"}},
	} {
		var got []string
		for _, request := range r.ofUser(t.Context(), c.o) {
			got = append(got, request.Name)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q look again, want %q", name, got, c.want)
		}
	}
}
