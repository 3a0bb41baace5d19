// Package importers fills the claims of dataVolumeTemplates where there is no CDI: it carries out what
// package imports decides. Start reading at Reconciler.Reconcile.
//
// Like the controllers of VMs it decides on what the API server says, and its caches say only whether
// there may be something to do. The pod that fills a claim has one name, which follows from the
// claim's UID, and a claim is marked as filled before its pod goes: so neither two leaders nor a
// controller that is killed anywhere import twice what a guest has used.
package importers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

// Reconciler fills claims. Its fields are set before its first use and not changed; it may then be
// used concurrently.
type Reconciler struct {
	// Client writes, and reads from caches.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Events takes the VMs' events.
	Events events.EventRecorder
	// Pod is the pod that fills a claim; its Input is not set.
	Pod func(launcher.Filling) (*corev1.Pod, error)
	// Progress asks a pod for its progress, in percent; negative: it doesn't say.
	Progress func(ctx context.Context, pod *corev1.Pod) float64
	// Calls are those by which pods are asked.
	Calls Calls
	// Now is the time.
	Now func() time.Time
	// Making are the claims of pods that are being made, also of VMs'.
	Making *claimuse.Locks
	// seen is when the pods were seen first.
	seen sightings
}

// sightings is when the present pod of each claim was seen first. The zero value has none. Its methods may be called
// concurrently.
type sightings struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]sighting
}

type sighting struct {
	pod types.UID
	at  time.Time
}

// see notes the pod of a claim, nil if it has none, and returns when it was seen first.
func (s *sightings) see(claim types.NamespacedName, pod *corev1.Pod, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod == nil {
		delete(s.pods, claim)
		return now
	}
	if s.pods == nil {
		s.pods = make(map[types.NamespacedName]sighting)
	}
	if known, has := s.pods[claim]; !has || known.pod != pod.UID {
		s.pods[claim] = sighting{pod.UID, now}
	}
	return s.pods[claim].at
}

// Calls are short calls, for which no reconciler waits.
type Calls interface {
	// Make returns how a call has ended, if it has; else it has it be made, unless it is under way or
	// was made just now.
	Make(key calls.Key, do func(context.Context) (float64, error)) calls.Answer[float64]
}

const (
	workers = 4
	// patience is the most time until what has failed is tried again.
	patience = time.Minute
	// roundPatience is how long one call of Reconcile may take.
	roundPatience = 2 * time.Minute
	// soon is when a claim is looked at again that has changed since it was read.
	soon = time.Second
)

// Setup adds the controller to a manager. called has the claims of whose calls something new is known.
func (r *Reconciler) Setup(m ctrl.Manager, called <-chan types.NamespacedName) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, is := o.GetAnnotations()[contract.AnnotationImport]
		return is
	})
	return ctrl.NewControllerManagedBy(m).Named("import").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(ours)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&kubevirtv1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(ofVM)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go follow(ctx, called, queue)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: roundPatience, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](patience/1000, patience)}).
		Complete(r)
}

// follow has claims looked at of whose calls something new is known.
func follow(ctx context.Context, called <-chan types.NamespacedName, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case claim := <-called:
			queue.Add(reconcile.Request{NamespacedName: claim})
		}
	}
}

// ofPod has the claim that a pod fills.
func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	p := o.(*corev1.Pod)
	name := filledBy(p)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: name}}}
}

// filledBy is the name of the claim that a pod fills; empty: it fills none.
func filledBy(p *corev1.Pod) string {
	if p.Labels[contract.LabelApp] != contract.LabelAppImporter {
		return ""
	}
	for _, v := range p.Spec.Volumes {
		if v.Name == launcher.VolumeTarget && v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// ofVM has the claims of a VM's templates.
func ofVM(_ context.Context, o client.Object) (requests []reconcile.Request) {
	for _, t := range o.(*kubevirtv1.VirtualMachine).Spec.DataVolumeTemplates {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: t.Name}})
	}
	return requests
}

// Reconcile takes a claim one step further. It may be called for one that vmlet does not fill, or that
// is not there.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := r.observe(ctx, r.Client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := imports.Decide(o)
	if len(d.Actions) == 0 {
		return reconcile.Result{RequeueAfter: d.Again}, nil
	}
	percent := o.Percent
	if o, err = r.observe(ctx, r.Live, request.NamespacedName); err != nil {
		return reconcile.Result{}, err
	}
	if o.Percent < 0 {
		o.Percent = percent
	}
	d = imports.Decide(o)
	for _, a := range d.Actions {
		err := r.act(ctx, o, a)
		switch {
		case errors.Is(err, errInUse), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			return reconcile.Result{RequeueAfter: soon}, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return reconcile.Result{}, nil // the claim's own deletion follows
		case err != nil:
			return reconcile.Result{}, r.tell(ctx, o, a, err)
		}
	}
	return reconcile.Result{RequeueAfter: d.Again}, nil
}

// observe is what Decide goes by.
func (r *Reconciler) observe(ctx context.Context, from client.Reader, key types.NamespacedName) (imports.Observed, error) {
	o, err := r.read(ctx, from, key)
	if err == nil {
		o.Since = r.seen.see(key, o.Pod(), o.Now)
	}
	return o, err
}

func (r *Reconciler) read(ctx context.Context, from client.Reader, key types.NamespacedName) (imports.Observed, error) {
	o := imports.Observed{Percent: -1, Now: r.Now()}
	var pods corev1.PodList
	if err := from.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{contract.LabelApp: contract.LabelAppImporter}); err != nil {
		return o, err
	}
	o.Pods = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return filledBy(&p) != key.Name })
	claim, err := get(ctx, from, key, new(corev1.PersistentVolumeClaim))
	if err != nil || claim == nil || imports.Read(claim) == nil {
		return o, err
	}
	o.Claim = claim
	if owner := metav1.GetControllerOf(claim); owner != nil {
		vm, err := get(ctx, from, types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}, new(kubevirtv1.VirtualMachine))
		if err != nil {
			return o, err
		}
		if o.Template = imports.TemplateOf(vm, claim); o.Template != nil {
			o.VM = vm
		}
	}
	if o.Template == nil || imports.Read(claim).Phase == contract.ImportSucceeded {
		return o, nil
	}
	return o, r.surroundings(ctx, from, &o)
}

// surroundings reads what an import that is not done waits for.
func (r *Reconciler) surroundings(ctx context.Context, from client.Reader, o *imports.Observed) (err error) {
	if name := o.Claim.Spec.StorageClassName; name != nil && *name != "" {
		if o.Class, err = get(ctx, from, types.NamespacedName{Name: *name}, new(storagev1.StorageClass)); err != nil {
			return err
		}
	}
	if p := o.Pod(); p != nil && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
		o.Percent = r.percent(client.ObjectKeyFromObject(o.Claim), p)
	}
	if len(o.Pods) > 0 {
		return nil
	}
	if source := o.Template.Spec.Source; source != nil && source.PVC != nil {
		if o.From, err = get(ctx, from, types.NamespacedName{Namespace: o.Claim.Namespace, Name: source.PVC.Name}, new(corev1.PersistentVolumeClaim)); err != nil {
			return err
		}
	}
	return r.users(ctx, from, o)
}

// users reads which pods use the claim, and which may write to the one that is copied. Of the latter all are read, as the
// cache has vmlet's alone.
func (r *Reconciler) users(ctx context.Context, from client.Reader, o *imports.Observed) (err error) {
	namespace, ours := client.InNamespace(o.Claim.Namespace), client.HasLabels{contract.LabelApp}
	if o.User, err = r.user(ctx, from, claimuse.Use{Claim: o.Claim.Name, Writes: true}, namespace, ours); err != nil || o.From == nil {
		return err
	}
	o.SourceUser, err = r.user(ctx, r.Live, claimuse.Use{Claim: o.From.Name}, namespace)
	return err
}

// percent is what a claim's own pod has said of its progress just now; negative: nothing. It is asked
// beside the workers: it is the tenant's network on which it does not answer.
func (r *Reconciler) percent(claim types.NamespacedName, p *corev1.Pod) float64 {
	key, p := calls.Key{Object: claim, Node: p.Spec.NodeName, Pod: p.UID, What: "progress"}, p.DeepCopy()
	answer := r.Calls.Make(key, func(ctx context.Context) (float64, error) { return r.Progress(ctx, p), nil })
	if !answer.Ended || answer.Err != nil {
		return -1
	}
	return answer.Result
}

// user is a pod of those that are listed whose use of a claim excludes another one; empty: there is none. Of a pod whose
// instance the cache does not have all disks count as written to.
func (r *Reconciler) user(ctx context.Context, from client.Reader, use claimuse.Use, namespace client.InNamespace, of ...client.ListOption) (string, error) {
	var pods corev1.PodList
	if err := from.List(ctx, &pods, append(of, namespace)...); err != nil {
		return "", err
	}
	var instances kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &instances, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	return claimuse.User(pods.Items, instances.Items, use), nil
}

// act carries out one action.
func (r *Reconciler) act(ctx context.Context, o imports.Observed, a imports.Action) error {
	switch a := a.(type) {
	case imports.Record:
		return r.record(ctx, o, a)
	case imports.CreatePod:
		p, err := r.Pod(launcher.Filling{
			VM: o.VM, Claim: o.Claim, Spec: &o.Template.Spec, From: o.From, Source: a.Source, Restarts: a.Restarts,
		})
		if err != nil {
			return err
		}
		return launcher.Refused(r.createAlone(ctx, o, p), p)
	case imports.DeletePod:
		return r.Client.Delete(ctx, a.Pod.DeepCopy(), client.Preconditions{UID: &a.Pod.UID})
	}
	return fmt.Errorf("unknown action %T", a)
}

// errInUse is that a VM has a claim, or is just being started with it: the next look says which.
var errInUse = errors.New("a VM uses a claim")

// createAlone makes the pod while no VM's is made with one of its claims, after a last look at who uses them: of two pods
// the one that is made later sees the other.
func (r *Reconciler) createAlone(ctx context.Context, o imports.Observed, p *corev1.Pod) error {
	done, alone := r.Making.Begin(p.Namespace, claimuse.OfPod(p, nil))
	if !alone {
		return errInUse
	}
	defer done()
	if err := r.users(ctx, r.Live, &o); err != nil {
		return err
	}
	if o.User != "" || o.SourceUser != "" {
		return errInUse
	}
	return r.Client.Create(ctx, p)
}

// record writes annotations of the claim, if it is as it was read.
func (r *Reconciler) record(ctx context.Context, o imports.Observed, a imports.Record) error {
	annotations := make(map[string]any)
	for key, value := range a.Annotations {
		if annotations[key] = value; value == "" {
			annotations[key] = nil
		}
	}
	metadata := map[string]any{"uid": o.Claim.UID, "resourceVersion": o.Claim.ResourceVersion, "annotations": annotations}
	if len(a.Labels) > 0 { // null would remove all
		metadata["labels"] = a.Labels
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, o.Claim.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	if a.Event != "" {
		r.Events.Eventf(o.VM, nil, corev1.EventTypeNormal, a.Event, a.Event, "%s", a.Note)
	}
	return nil
}

// tell writes to the claim that its pod can't be made. It returns the error of that.
func (r *Reconciler) tell(ctx context.Context, o imports.Observed, a imports.Action, failed error) error {
	if _, is := a.(imports.CreatePod); is && (apierrors.IsForbidden(failed) || apierrors.IsInvalid(failed)) {
		claim, err := get(ctx, r.Live, client.ObjectKeyFromObject(o.Claim), new(corev1.PersistentVolumeClaim))
		if err != nil || claim == nil {
			return failed
		}
		o.Claim = claim
		if record := imports.Refused(o, failed.Error()); record != nil {
			if err := r.record(ctx, o, *record); err != nil {
				return err
			}
		}
	}
	return failed
}

// get is client.Get, with the zero value for what is not there.
func get[T client.Object](ctx context.Context, from client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	switch err := from.Get(ctx, key, into); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return into, nil
}
