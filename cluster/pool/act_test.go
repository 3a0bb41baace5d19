package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// served is an API server with a pool of two VMs, each with a disk that was made for it.
type served struct {
	client.WithWatch
	r      *Reconciler
	events *events.FakeRecorder
	// fails is asked before each write: verb, kind and name.
	fails func(what string) error
}

func serve(t *testing.T, spec string) *served {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), appsv1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme), poolv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := &served{events: events.NewFakeRecorder(1000), fails: func(string) error { return nil }}
	o := now(t, spec, up, up)
	objects := []client.Object{o.pool}
	revision, err := o.revisions[0].object(o.pool)
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, revision)
	for _, m := range o.members {
		m.vm.ResourceVersion = ""
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name, claim.UID = "space", m.vm.Spec.DataVolumeTemplates[0].Name, types.UID("claim-"+m.vm.Name)
		claim.OwnerReferences = []metav1.OwnerReference{ownerVM(m.vm)}
		objects = append(objects, m.vm, claim)
	}
	ask := func(verb string, o client.Object) error { return s.fails(verb + " " + kindOf(o) + " " + o.GetName()) }
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&poolv1.VirtualMachinePool{}, &kubevirtv1.VirtualMachine{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := ask("create", o); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := ask("patch", o); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
		}).Build()
	s.r = &Reconciler{Client: s, Live: s, Events: s.events, Now: func() time.Time { return start }}
	return s
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.PersistentVolumeClaim:
		return "claim"
	case *kubevirtv1.VirtualMachine:
		return "vm"
	}
	return "object"
}

func (s *served) reconcile(t *testing.T) error {
	t.Helper()
	_, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "space", Name: "web"}})
	return err
}

func (s *served) vms(t *testing.T) (names []string) {
	t.Helper()
	var all kubevirtv1.VirtualMachineList
	if err := s.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, vm := range all.Items {
		names = append(names, vm.Name)
	}
	return names
}

func (s *served) claim(t *testing.T, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	if err := s.Get(t.Context(), types.NamespacedName{Namespace: "space", Name: name}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *served) pool(t *testing.T) *poolv1.VirtualMachinePool {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	if err := s.Get(t.Context(), types.NamespacedName{Namespace: "space", Name: "web"}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

const scaledIn = "{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Offline, selectionPolicy: {sortPolicy: DescendingOrder}}}}"

// TestKeptBeforeDeleted: a VM whose disks are to be kept is deleted when they are the pool's, and not before.
func TestKeptBeforeDeleted(t *testing.T) {
	s := serve(t, scaledIn)
	s.fails = func(what string) error {
		if what == "patch claim root-1" {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "root-1", errors.New("not today"))
		}
		return nil
	}
	if err := s.reconcile(t); err == nil || !strings.Contains(err.Error(), "not today") {
		t.Errorf("got %v, want that the disk can't be kept", err)
	}
	if got := s.vms(t); !slices.Equal(got, []string{"web-0", "web-1"}) {
		t.Fatalf("there are the VMs %v: one went without its disk", got)
	}
	failure := ""
	for _, c := range s.pool(t).Status.Conditions {
		if c.Type == poolv1.ConditionReplicaFailure {
			failure = c.Message
		}
	}
	if !strings.Contains(failure, "keep the disks of VM web-1") || !strings.Contains(failure, "not today") {
		t.Errorf("condition ReplicaFailure says %q", failure)
	}

	s.fails = func(string) error { return nil }
	if err := s.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if got := s.vms(t); !slices.Equal(got, []string{"web-0"}) {
		t.Errorf("there are the VMs %v", got)
	}
	kept, other := s.claim(t, "root-1"), s.claim(t, "root-0")
	if !metav1.IsControlledBy(kept, s.pool(t)) || len(kept.OwnerReferences) != 1 || kept.Labels[contract.LabelPoolIndex] != "1" || kept.Labels[contract.LabelPoolPreserved] != "Offline" {
		t.Errorf("the disk is kept as %+v", kept.ObjectMeta)
	}
	if other.Labels[contract.LabelPool] != "" || other.OwnerReferences[0].Kind != "VirtualMachine" {
		t.Errorf("the other VM's disk was changed: %+v", other.ObjectMeta)
	}
}

// TestOthersDisk: a disk of the name that somebody else made stays his.
func TestOthersDisk(t *testing.T) {
	s := serve(t, scaledIn)
	c := s.claim(t, "root-1")
	c.OwnerReferences = nil
	if err := s.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if c := s.claim(t, "root-1"); len(c.OwnerReferences) != 0 || len(c.Labels) != 0 || !slices.Equal(s.vms(t), []string{"web-0"}) {
		t.Errorf("the disk is kept as %+v, of the VMs there are %v", c.ObjectMeta, s.vms(t))
	}
}

// TestRetained: disks that are to outlive the pool belong to nobody.
func TestRetained(t *testing.T) {
	s := serve(t, strings.Replace(scaledIn, "replicas: 1", "replicas: 1, preservation: {onPoolDeletion: Retain}", 1))
	if err := s.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if kept := s.claim(t, "root-1"); len(kept.OwnerReferences) != 0 || kept.Labels[contract.LabelPool] != "pool-uid" {
		t.Errorf("the disk is kept as %+v", kept.ObjectMeta)
	}
}

// TestStaleView: no VM is removed on the word of a cache, if by now there are not too many, or as many are wanted.
func TestStaleView(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *served){
		"a VM is gone": func(t *testing.T, s *served) {
			vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "web-0"}}
			if err := s.WithWatch.Delete(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
		},
		"more are wanted": func(t *testing.T, s *served) {
			p := s.pool(t)
			p.Spec.Replicas, p.Generation = new(int32(2)), 2
			if err := s.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		},
	} {
		s := serve(t, scaledIn)
		o, err := s.r.observe(t.Context(), types.NamespacedName{Namespace: "space", Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		change(t, s)
		before := s.vms(t)
		var all []action
		for _, a := range decide(o).actions {
			if _, status := a.(writeStatus); !status {
				all = append(all, a)
			}
		}
		if err := s.r.carryOut(t.Context(), o, all); !errors.Is(err, errChanged) {
			t.Errorf("%s: got %v, want that objects have changed", name, err)
		}
		if got := s.vms(t); !slices.Equal(got, before) {
			t.Errorf("%s: of the VMs %v there are %v", name, before, got)
		}
	}
}

// TestDisksOutliveStaleViews: what the cache has of an earlier moment loses no disk.
func TestDisksOutliveStaleViews(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, s *served)
		act    func(o state) action
	}{
		"given to a VM that was deleted": {
			func(t *testing.T, s *served) {
				if err := s.WithWatch.Delete(t.Context(), &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "web-1"}}); err != nil {
					t.Fatal(err)
				}
			},
			func(o state) action { return returnClaim{o.claims[0], o.members[1]} },
		},
		"given to a VM that is being deleted": {
			func(t *testing.T, s *served) {
				vm := &kubevirtv1.VirtualMachine{}
				if err := s.Get(t.Context(), types.NamespacedName{Namespace: "space", Name: "web-1"}, vm); err != nil {
					t.Fatal(err)
				}
				vm.Finalizers = append(vm.Finalizers, "a.test/b")
				if err := s.Update(t.Context(), vm); err != nil {
					t.Fatal(err)
				}
				if err := s.WithWatch.Delete(t.Context(), vm); err != nil {
					t.Fatal(err)
				}
			},
			func(o state) action { return returnClaim{o.claims[0], o.members[1]} },
		},
		"deleted though a VM has it again": {takenAgain, func(o state) action { return deleteClaim{o.claims[0], event{}} }},
		"owned though a VM has it again":   {takenAgain, func(o state) action { return ownClaim{o.claims[0], true} }},
	} {
		s := serve(t, "replicas: 2")
		c := s.claim(t, "root-1")
		c.Labels = with(c.Labels, map[string]string{contract.LabelPool: string(s.pool(t).UID), contract.LabelPoolIndex: "1"})
		mark(c, poolv1.PreserveDisks, s.r.Now())
		c.OwnerReferences = nil
		if err := s.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		o, err := s.r.observe(t.Context(), types.NamespacedName{Namespace: "space", Name: "web"})
		if err != nil || len(o.claims) != 1 || len(o.members) != 2 {
			t.Fatalf("there are %d kept disks and %d members, %v", len(o.claims), len(o.members), err)
		}
		test.change(t, s)
		before := s.claim(t, "root-1").OwnerReferences
		if err := s.r.carryOut(t.Context(), o, []action{test.act(o)}); !errors.Is(err, errChanged) {
			t.Errorf("%s: got %v, want that objects have changed", name, err)
		}
		if now := s.claim(t, "root-1").OwnerReferences; !slices.EqualFunc(now, before, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
			t.Errorf("%s: the disk's owners are %v, and were %v", name, now, before)
		}
	}
}

// takenAgain gives the disk of web-1 back to it.
func takenAgain(t *testing.T, s *served) {
	c, vm := s.claim(t, "root-1"), &kubevirtv1.VirtualMachine{}
	if err := s.Get(t.Context(), types.NamespacedName{Namespace: "space", Name: "web-1"}, vm); err != nil {
		t.Fatal(err)
	}
	c.Labels, c.OwnerReferences = nil, []metav1.OwnerReference{ownerVM(vm)}
	if err := s.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// TestFirstFailureStops: after a VM that can't be made no other one is tried.
func TestFirstFailureStops(t *testing.T) {
	s := serve(t, "replicas: 9")
	tried := 0
	s.fails = func(what string) error {
		if strings.HasPrefix(what, "create vm") {
			tried++
			return apierrors.NewForbidden(corev1.Resource("virtualmachines"), "web", errors.New("exceeded quota"))
		}
		return nil
	}
	if err := s.reconcile(t); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("got %v", err)
	}
	if tried != 1 {
		t.Errorf("%d were tried", tried)
	}
	var said []string
	for len(s.events.Events) > 0 {
		said = append(said, <-s.events.Events)
	}
	if !slices.ContainsFunc(said, func(e string) bool {
		return strings.Contains(e, "FailedCreate") && strings.Contains(e, "exceeded quota")
	}) {
		t.Errorf("events are %q", said)
	}
}

// TestPoolOf: a change of a VM or a disk wakes the pool that owns it, or whose label it has.
func TestPoolOf(t *testing.T) {
	s := serve(t, "{}")
	uid := string(s.pool(t).UID)
	r := &Reconciler{Client: s}
	for name, c := range map[string]struct{ kind, owner, label, want string }{
		"owned by the pool":                    {kind: poolv1.Kind, owner: uid, label: uid, want: s.pool(t).Name},
		"owned by the pool, without its label": {kind: poolv1.Kind, owner: uid, want: s.pool(t).Name},
		"owned by a VM of the pool":            {kind: "VirtualMachine", owner: "other", label: uid, want: s.pool(t).Name},
		"owned by another":                     {kind: "VirtualMachine", owner: "other"},
		"owned by nobody":                      {label: uid, want: s.pool(t).Name},
		"of another pool's label":              {label: "other"},
		"of nobody":                            {},
	} {
		o := &corev1.PersistentVolumeClaim{}
		o.Namespace, o.Name = s.pool(t).Namespace, "disk"
		if c.label != "" {
			o.Labels = map[string]string{contract.LabelPool: c.label}
		}
		if c.kind != "" {
			controls := true
			o.OwnerReferences = []metav1.OwnerReference{{Kind: c.kind, Name: s.pool(t).Name, UID: types.UID(c.owner), Controller: &controls}}
		}
		got := ""
		for _, one := range r.poolOf(t.Context(), o) {
			got += one.Name
		}
		if got != c.want {
			t.Errorf("%s: a change wakes %q, want %q", name, got, c.want)
		}
	}
}
