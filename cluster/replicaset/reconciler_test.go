package replicaset

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// stale is a cache that has not seen any instance yet.
type stale struct{ client.Client }

func (s stale) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, is := list.(*kubevirtv1.VirtualMachineInstanceList); is {
		return nil
	}
	return s.Client.List(ctx, list, options...)
}

func serve(t *testing.T, refused error, all ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithStatusSubresource(&kubevirtv1.VirtualMachineInstanceReplicaSet{}, &kubevirtv1.VirtualMachineInstance{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refused != nil {
				return refused
			}
			return c.Create(ctx, o, opts...)
		}}).Build()
}

// TestReconcile: instances are made and deleted by what the API server has, not by what a cache has not seen yet; one that
// is nobody's is adopted, and one that matches no more is given up.
func TestReconcile(t *testing.T) {
	set := newSet(3)
	vmis := instances(set, orphan(up), unlike, over)
	var all []client.Object
	for _, vmi := range vmis {
		vmi.ResourceVersion = ""
		all = append(all, vmi)
	}
	api := serve(t, nil, append(all, set)...)
	r := &Reconciler{Client: stale{api}, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return start }}
	for range 4 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)}); err != nil {
			t.Fatal(err)
		}
	}
	var now kubevirtv1.VirtualMachineInstanceList
	if err := api.List(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	owned, free := 0, ""
	for i := range now.Items {
		if metav1.IsControlledBy(&now.Items[i], set) {
			owned++
		} else {
			free += now.Items[i].Name
		}
	}
	if owned != 3 || free != "b" {
		t.Errorf("the set has %d instances, others are %q; want 3, and b", owned, free)
	}
}

// TestRefused: an instance that can't be made is told of, and no other is tried.
func TestRefused(t *testing.T) {
	set := newSet(3)
	quota := apierrors.NewForbidden(corev1.Resource("virtualmachineinstances"), "web", errors.New("exceeded quota"))
	api := serve(t, quota, set)
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{Client: api, Live: api, Events: recorder, Now: func() time.Time { return start }}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)}); err == nil {
		t.Error("no error")
	}
	if len(recorder.Events) != 1 {
		t.Errorf("%d events, want one", len(recorder.Events))
	}
	now := &kubevirtv1.VirtualMachineInstanceReplicaSet{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(set), now); err != nil {
		t.Fatal(err)
	}
	if c := now.Status.Conditions; len(c) != 1 || c[0].Type != kubevirtv1.ReplicaSetFailure {
		t.Errorf("conditions are %+v, want ReplicaFailure", c)
	}
}

// TestSetOf: a change of an instance wakes the set that owns it, and of an orphan those whose selector it matches.
func TestSetOf(t *testing.T) {
	set := func(name, app string) *kubevirtv1.VirtualMachineInstanceReplicaSet {
		s := &kubevirtv1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return s
	}
	r := &Reconciler{Client: serve(t, nil, set("web", "web"), set("db", "db"))}
	for name, c := range map[string]struct{ kind, app, want string }{
		"owned by a set":      {kubevirtv1.KindReplicaSet, "db", "web"},
		"owned by a VM":       {"VirtualMachine", "web", ""},
		"an orphan":           {"", "db", "db"},
		"an orphan of no set": {"", "mail", ""},
	} {
		vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vmi", Labels: map[string]string{"app": c.app}}}
		if c.kind != "" {
			controls := true
			vmi.OwnerReferences = []metav1.OwnerReference{{Kind: c.kind, Name: "web", Controller: &controls}}
		}
		got := ""
		for _, one := range r.setOf(t.Context(), vmi) {
			got += one.Name
		}
		if got != c.want {
			t.Errorf("%s: a change wakes %q, want %q", name, got, c.want)
		}
	}
}
