package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// web is the VM of all walks.
var web = types.NamespacedName{Namespace: "ns", Name: "web"}

// world is an API server, a stand-in for the controller of instances, and a user. A
// reconciler in it can be killed, lag behind and be doubled.
type world struct {
	t      *testing.T
	server client.WithWatch
	now    time.Time
	uids   int

	// made are the instances that were ever created, guests those whose guest runs.
	made   []types.UID
	guests map[types.UID]bool
	events []string
	// stuck: no save comes to its end. broken is why no guest goes on from its image.
	stuck  bool
	broken string
	// uses are those of the VM's claims.
	uses *uses
	// full: the namespace's quota has no room for another claim.
	full bool
	// images were saved, restored are those that a guest has gone on from.
	images   int
	restored map[string]types.UID

	writes int
	fault  fault
	// dead: the controller has been killed, and is not back.
	dead bool
	// seen is what the caches have.
	seen  map[string]client.Object
	lag   lag
	round int
}

// fault is what happens at one of the controller's writes.
type fault struct {
	at   int // the write's number, from 1; 0: none
	kind string
}

const (
	refusedOnce = "is refused" // or the controller killed before it: it remembers nothing
	unheard     = "is done, and the controller killed before it knows"
	doubled     = "comes after another leader's whole step"
	asked       = "comes after a user's request to stop"
	untouched   = ""
)

// lag is how far the caches are behind: each is brought up to date every so many rounds.
type lag struct{ vm, instance int }

func newScheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(s), corev1.AddToScheme(s), kubevirtv1.AddToScheme(s), instancetypev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func newWorld(t *testing.T, f fault, l lag) *world {
	w := &world{t: t, now: noon, guests: map[types.UID]bool{}, restored: map[string]types.UID{}, fault: f, lag: l, seen: map[string]client.Object{}, uses: &uses{}}
	scheme := newScheme(t)
	w.server = fake.NewClientBuilder().WithScheme(scheme).
		WithObjectTracker(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())).
		WithIndex(&kubevirtv1.VirtualMachine{}, byVolume, func(o client.Object) []string { return usedClaims(o.(*kubevirtv1.VirtualMachine)) }).
		WithStatusSubresource(&kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{}).Build()
	return w
}

// reconciler returns a controller as it is after its start.
func (w *world) reconciler() *Reconciler {
	w.dead = false
	live := interceptor.NewClient(w.server, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return w.write(fmt.Sprintf("create %T", o), func() error { return w.create(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return w.write(fmt.Sprintf("delete %T", o), func() error { return w.delete(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return w.write(fmt.Sprintf("patch %T", o), func() error { return c.Patch(ctx, o, p, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			return w.write(fmt.Sprintf("status %T", o), func() error { return c.SubResource(sub).Patch(ctx, o, p, options...) })
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("the controller patches")
		},
	})
	client := cached{live, w}
	return &Reconciler{
		Observer: &Observer{Client: client, Live: live, Defaults: noDefaults, Uses: w.uses, Now: w.clock},
		Writer:   &Writer{Client: client, Live: live, Events: recorder{w}},
	}
}

// write is one of the controller's, which the fault may befall.
func (w *world) write(what string, do func() error) error {
	if w.dead {
		return errors.New("the controller is dead")
	}
	w.writes++
	kind := untouched
	if w.writes == w.fault.at {
		kind = w.fault.kind
		w.t.Logf("write %d, %s, %s", w.writes, what, kind)
	}
	switch kind {
	case refusedOnce:
		return apierrors.NewInternalError(errors.New("refused for once"))
	case unheard:
		err := do()
		w.dead = true
		return errors.Join(err, errors.New("killed"))
	case asked:
		w.request(stopRequest(w.instance().UID))
	case doubled:
		other := w.reconciler()
		other.Writer.Client = cached{other.Writer.Live.(client.Client), nil}
		other.Observer.Client = other.Writer.Client
		for range 3 {
			if _, err := other.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: web}); err != nil {
				w.t.Logf("the other leader: %v", err)
			}
		}
	}
	return do()
}

// create has the API server's part that the fake has not: UIDs.
func (w *world) create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if _, claim := o.(*corev1.PersistentVolumeClaim); claim && w.full {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("exceeded quota"))
	}
	w.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	o.SetCreationTimestamp(metav1.NewTime(w.now))
	if err := w.server.Create(ctx, o, options...); err != nil {
		return err
	}
	if _, is := o.(*kubevirtv1.VirtualMachineInstance); is {
		w.made = append(w.made, o.GetUID())
	}
	return nil
}

// delete honours the UID that is meant, which the fake does not.
func (w *world) delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	var d client.DeleteOptions
	d.ApplyOptions(options)
	_, instance := o.(*kubevirtv1.VirtualMachineInstance)
	if instance && (d.Preconditions == nil || d.Preconditions.UID == nil) {
		w.t.Errorf("an instance is deleted by its name alone")
	}
	if d.Preconditions != nil && d.Preconditions.UID != nil {
		there := o.DeepCopyObject().(client.Object)
		if err := w.server.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
			return err
		}
		if there.GetUID() != *d.Preconditions.UID {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("another UID"))
		}
	}
	return w.server.Delete(ctx, o, options...)
}

// cached reads what the caches have seen; without a world, what is.
type cached struct {
	client.Client
	w *world
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if c.w == nil {
		return c.Client.Get(ctx, key, o, options...)
	}
	seen, is := c.w.seen[fmt.Sprintf("%T", o)]
	switch {
	case !is:
		return c.Client.Get(ctx, key, o, options...)
	case seen == nil:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	switch o := o.(type) {
	case *kubevirtv1.VirtualMachine:
		seen.(*kubevirtv1.VirtualMachine).DeepCopyInto(o)
	case *kubevirtv1.VirtualMachineInstance:
		seen.(*kubevirtv1.VirtualMachineInstance).DeepCopyInto(o)
	}
	return nil
}

// watch brings a cache up to date, if its time has come.
func (w *world) watch(o client.Object, every int) {
	if every == 0 {
		return
	}
	kind := fmt.Sprintf("%T", o)
	if _, is := w.seen[kind]; is && w.round%every != 0 {
		return
	}
	w.seen[kind] = nil
	if err := w.server.Get(w.t.Context(), web, o); err == nil {
		w.seen[kind] = o
	}
}

type recorder struct{ w *world }

func (r recorder) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.w.events = append(r.w.events, reason+": "+fmt.Sprintf(note, args...))
}

// reconcile lets the controller of VMs alone work once, at the time when it wants to.
func (w *world) reconcile(r *Reconciler) {
	w.t.Helper()
	result, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: web})
	w.must(err)
	w.now = w.now.Add(result.RequeueAfter)
}

// converge lets the controllers work until nothing is left to do.
func (w *world) converge(until func() string) {
	w.t.Helper()
	r := w.reconciler()
	const patience = 200
	quiet := 0
	for range patience {
		w.round++
		if w.dead {
			r = w.reconciler()
		}
		w.watch(&kubevirtv1.VirtualMachine{}, w.lag.vm)
		w.watch(&kubevirtv1.VirtualMachineInstance{}, w.lag.instance)
		writes := w.writes
		result, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: web})
		w.now = w.now.Add(result.RequeueAfter)
		stepped := w.instances()
		w.check()
		if err != nil || stepped || w.writes != writes || result.RequeueAfter > 0 {
			quiet = 0
			continue
		}
		if quiet++; quiet > w.lag.vm+w.lag.instance+1 {
			break
		}
	}
	if quiet == 0 {
		w.t.Fatal("the controller does not come to rest")
	}
	if fault := until(); fault != "" {
		w.t.Fatalf("%s; events %q", fault, w.events)
	}
}

// instances is one step of the stand-in for the controller of instances.
func (w *world) instances() (stepped bool) {
	instance := w.instance()
	if instance == nil {
		return false
	}
	if instance.DeletionTimestamp != nil {
		return w.end(instance)
	}
	if w.saves(instance) {
		return true
	}
	if w.broken != "" && instance.Spec.RestoreFrom != nil && instance.Status.Phase == kubevirtv1.PhaseScheduling {
		w.phase(kubevirtv1.PhaseFailed)
		instance = w.instance()
		instance.Status.Conditions = append(instance.Status.Conditions, kubevirtv1.Condition{
			Type: kubevirtv1.ConditionHibernationRestoreInProgress, Status: "False", Reason: w.broken, Message: "so it is",
		})
		w.must(w.server.Status().Update(w.t.Context(), instance))
		return true
	}
	next := map[kubevirtv1.Phase]kubevirtv1.Phase{
		"": kubevirtv1.PhasePending, kubevirtv1.PhasePending: kubevirtv1.PhaseScheduling,
		kubevirtv1.PhaseScheduling: kubevirtv1.PhaseScheduled, kubevirtv1.PhaseScheduled: kubevirtv1.PhaseRunning,
	}[instance.Status.Phase]
	if next == "" {
		return false
	}
	w.phase(next)
	return true
}

// saves is what the instance's controller does about stopStrategy: it says that it saves, and then
// the guest is saved; or it goes on.
func (w *world) saves(instance *kubevirtv1.VirtualMachineInstance) bool {
	w.t.Helper()
	says := kubevirtv1.FindCondition(instance.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	switch stop := instance.Spec.StopStrategy; {
	case instance.Status.Phase != kubevirtv1.PhaseRunning:
		return false
	case stop == "" && says == nil:
		return false
	case stop == "":
		instance.Status.Conditions = slices.DeleteFunc(instance.Status.Conditions, func(c kubevirtv1.Condition) bool { return c.Type == says.Type })
	case says == nil:
		instance.Status.Conditions = append(instance.Status.Conditions, kubevirtv1.Condition{
			Type: kubevirtv1.ConditionHibernationInProgress, Status: "True", Reason: "Saving", LastTransitionTime: metav1.NewTime(w.now),
		})
	case w.stuck:
		return false
	default:
		volumes := instance.Spec.UtilityVolumes
		if len(volumes) == 0 {
			w.t.Fatal("the guest is to be saved to nothing")
		}
		w.images++
		w.phase(kubevirtv1.PhaseSucceeded)
		instance = w.instance()
		instance.Status.SavedImage = &kubevirtv1.SavedImage{
			ID: fmt.Sprint("image-", w.images), ClaimName: volumes[len(volumes)-1].ClaimName, Directory: "restore-web",
			VirtualMachineRevisionName: run.RevisionName(w.vm().UID, run.Generation(instance)),
		}
	}
	w.must(w.server.Status().Update(w.t.Context(), instance))
	return true
}

// end ends the guest of an instance that is being deleted, and then lets it go.
func (w *world) end(instance *kubevirtv1.VirtualMachineInstance) bool {
	if !run.Ended(instance) {
		w.phase(kubevirtv1.PhaseFailed)
		return true
	}
	kept := without(slices.Clone(instance.Finalizers), contract.FinalizerInstance)
	if len(kept) == len(instance.Finalizers) {
		return false
	}
	instance.Finalizers = kept
	w.must(w.server.Update(w.t.Context(), instance))
	return true
}

// phase moves the VM's instance to a phase.
func (w *world) phase(p kubevirtv1.Phase) {
	w.t.Helper()
	instance := w.instance()
	if instance == nil {
		w.t.Fatalf("there is no instance to become %s", p)
	}
	ready := kubevirtv1.Condition{Type: "Ready", Status: "False", Reason: "GuestNotRunning", LastTransitionTime: metav1.NewTime(w.now)}
	if p == kubevirtv1.PhaseRunning {
		ready.Status, ready.Reason = "True", ""
	}
	instance.Status.Phase = p
	instance.Status.PhaseTransitionTimestamps = append(instance.Status.PhaseTransitionTimestamps, kubevirtv1.PhaseTransition{Phase: p})
	instance.Status.Conditions = []kubevirtv1.Condition{ready}
	w.guests[instance.UID] = p == kubevirtv1.PhaseRunning
	if image := instance.Spec.RestoreFrom; p == kubevirtv1.PhaseRunning && image != nil {
		if by, is := w.restored[image.ID]; is && by != instance.UID {
			w.t.Fatalf("%s is restored twice, by %s and by %s", image.ID, by, instance.UID)
		}
		w.restored[image.ID] = instance.UID
		w.claim(image.ClaimName)
	}
	w.must(w.server.Status().Update(w.t.Context(), instance))
}

// check holds the world to what may never be.
func (w *world) check() {
	w.t.Helper()
	instance := w.instance()
	for uid, runs := range w.guests {
		if runs && (instance == nil || instance.UID != uid) {
			w.t.Fatalf("the guest of %s runs, and the instance is %v", uid, instance)
		}
	}
}

// claim is there, whose memory is needed.
func (w *world) claim(name string) {
	w.t.Helper()
	if err := w.server.Get(w.t.Context(), types.NamespacedName{Namespace: web.Namespace, Name: name}, &corev1.PersistentVolumeClaim{}); err != nil {
		w.t.Fatalf("the guest's memory is gone: %v", err)
	}
}

// claims are the names of all claims.
func (w *world) claims() (names []string) {
	var all corev1.PersistentVolumeClaimList
	w.must(w.server.List(w.t.Context(), &all))
	for _, c := range all.Items {
		names = append(names, c.Name)
	}
	return names
}

// change is what a user does to the VM's spec.
func (w *world) change(how func(*kubevirtv1.VirtualMachine)) {
	w.t.Helper()
	vm := w.vm()
	how(vm)
	vm.Generation++
	w.must(w.server.Update(w.t.Context(), vm))
}

// request is what the API does for a user.
func (w *world) request(all ...kubevirtv1.StateChangeRequest) {
	w.t.Helper()
	vm := w.vm()
	vm.Status.StateChangeRequests = all
	w.must(w.server.Status().Update(w.t.Context(), vm))
}

func (w *world) vm() *kubevirtv1.VirtualMachine {
	w.t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if err := w.server.Get(w.t.Context(), web, vm); err != nil {
		return nil
	}
	return vm
}

func (w *world) instance() *kubevirtv1.VirtualMachineInstance {
	instance := &kubevirtv1.VirtualMachineInstance{}
	if err := w.server.Get(w.t.Context(), web, instance); err != nil {
		return nil
	}
	return instance
}

// revisions are the names of the VM's ControllerRevisions.
func (w *world) revisions() (names []string) {
	var all appsv1.ControllerRevisionList
	w.must(w.server.List(w.t.Context(), &all))
	for _, r := range all.Items {
		names = append(names, r.Name)
	}
	return names
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// step lets the VM's controller work once, and waits as long as it asks for.
func (w *world) step(r *Reconciler) {
	w.t.Helper()
	result, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: web})
	w.must(err)
	w.now = w.now.Add(result.RequeueAfter)
}

func (w *world) clock() time.Time { return w.now }
