package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// typeChapters are lives of VMs with instancetypes and preferences, as chapters are of others.
func typeChapters() map[string]func(*world) {
	return map[string]func(*world){
		"types that change": func(w *world) {
			w.size("small", 1)
			w.size("large", 4)
			w.prefer("linux", "sub")
			w.beginTyped("small")
			w.converge(w.hasSize(1, 1, "small"))
			w.size("small", 2) // the VM has begun with it as it was
			w.converge(w.hasSize(1, 1, "small"))
			w.restart()
			w.converge(w.hasSize(2, 1, "small"))
			if kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired") != nil {
				w.t.Fatal("a change of the instancetype is said to need a restart, which changes nothing")
			}
			w.change(func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Instancetype.Name = "large" })
			w.converge(w.is("Running", 2))
			c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired")
			if c == nil || !strings.Contains(c.Message, "spec.instancetype") {
				w.t.Fatalf("another instancetype is told as %v", c)
			}
			w.restart()
			w.converge(w.hasSize(3, 4, "large"))
			if kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired") != nil {
				w.t.Fatal("RestartRequired outlives the restart")
			}
			w.remove(3)
		},
		"types that are awaited": func(w *world) {
			w.prefer("linux", "sub")
			w.beginTyped("small")
			w.converge(func() string {
				c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Failure")
				if c == nil || c.Reason != reasonNoInstancetype || !strings.Contains(c.Message, "VirtualMachineClusterInstancetype small") || w.instance() != nil {
					return fmt.Sprintf("the failure is %v", c)
				}
				return ""
			})
			w.size("small", 1)
			w.converge(w.hasSize(1, 1, "small"))
		},
		"hibernate with types": func(w *world) {
			w.size("small", 1)
			w.size("large", 4)
			w.prefer("linux", "sub")
			w.beginTyped("small")
			w.converge(w.hasSize(1, 1, "small"))
			w.strategy("Hibernate")
			w.converge(w.sleeps(1, 1))
			w.strategy("Always", func(s *kubevirtv1.VirtualMachineSpec) { s.Instancetype.Name = "large" })
			w.converge(w.is("Running", 2))
			if got := w.instance().Spec.Domain.CPU.Sockets; got != 1 {
				w.t.Fatalf("the saved guest goes on with %d sockets, want the 1 that it had", got)
			}
			if kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired") == nil {
				w.t.Fatal("another instancetype is not told once the guest is back")
			}
			w.restart()
			w.converge(w.hasSize(3, 4, "large"))
		},
		"types that are taken away": func(w *world) {
			w.size("small", 1)
			w.prefer("linux", "sub")
			w.beginTyped("small")
			w.converge(w.hasSize(1, 1, "small"))
			w.change(func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Instancetype, vm.Spec.Preference = nil, nil })
			w.converge(w.is("Running", 1))
			if s := w.vm().Status; s.InstancetypeRef != nil || s.PreferenceRef != nil {
				w.t.Fatalf("left: %v, %v", s.InstancetypeRef, s.PreferenceRef)
			}
			w.restart()
			w.converge(w.is("Running", 2))
			w.keeps()
		},
	}
}

func (w *world) size(name string, cpus int32) {
	o := &instancetypev1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.CPU.Guest, o.Spec.Memory.Guest = cpus, resource.MustParse("1Gi")
	w.apply(o)
}

func (w *world) prefer(name, subdomain string) {
	o := &instancetypev1.VirtualMachinePreference{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	o.Spec.PreferredSubdomain = &subdomain
	w.apply(o)
}

// apply makes an object, or one generation more of it.
func (w *world) apply(o client.Object) {
	w.t.Helper()
	there := o.DeepCopyObject().(client.Object)
	if w.server.Get(w.t.Context(), client.ObjectKeyFromObject(o), there) == nil {
		o.SetUID(there.GetUID())
		o.SetResourceVersion(there.GetResourceVersion())
		o.SetGeneration(there.GetGeneration() + 1)
		w.must(w.server.Update(w.t.Context(), o))
		return
	}
	o.SetUID(types.UID("uid-of-" + o.GetName()))
	o.SetGeneration(1)
	w.must(w.server.Create(w.t.Context(), o))
}

func (w *world) beginTyped(size string) {
	vm := newVM("Always")
	vm.UID, vm.Finalizers, vm.Status = "", nil, kubevirtv1.VirtualMachineStatus{}
	vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: size}
	vm.Spec.Preference = &kubevirtv1.PreferenceMatcher{Name: "linux", Kind: "virtualmachinepreference"}
	w.must(w.create(w.t.Context(), vm))
}

func (w *world) restart() { w.request(stopRequest(w.instance().UID), startRequest()) }

// hasSize says what is wrong with a VM that is to run with so many sockets, of an instancetype.
func (w *world) hasSize(made int, sockets int32, size string) func() string {
	return func() string {
		if wrong := w.is("Running", made)(); wrong != "" {
			return wrong
		}
		vm, instance := w.vm(), w.instance()
		used, preferred := vm.Status.InstancetypeRef, vm.Status.PreferenceRef
		switch {
		case instance.Spec.Domain.CPU == nil || instance.Spec.Domain.CPU.Sockets != sockets:
			return fmt.Sprintf("the guest's CPU is %+v, want %d sockets", instance.Spec.Domain.CPU, sockets)
		case instance.Spec.Subdomain != "sub":
			return fmt.Sprintf("the subdomain is %q, want that of the preference", instance.Spec.Subdomain)
		case instance.Annotations[contract.AnnotationClusterInstancetype] != size || instance.Annotations[contract.AnnotationPreference] != "linux":
			return fmt.Sprintf("annotations are %q", instance.Annotations)
		case vm.Spec.Template.Spec.Domain.CPU != nil || vm.Spec.Template.Spec.Subdomain != "":
			return fmt.Sprintf("the types are written into the VM: %+v", vm.Spec.Template.Spec)
		case used == nil || used.Name != size || used.Kind != instancetypev1.KindClusterInstancetype || preferred == nil || preferred.Kind != instancetypev1.KindPreference:
			return fmt.Sprintf("the status names %+v and %+v", used, preferred)
		}
		w.keeps(used.ControllerRevisionRef.Name, preferred.ControllerRevisionRef.Name)
		return ""
	}
}

// keeps: the VM has these revisions, and that of its start, and no others, unless the controller
// failed to delete one, which it tries again at the next start.
func (w *world) keeps(want ...string) {
	w.t.Helper()
	want = append(want, run.RevisionName(w.vm().UID, run.Generation(w.instance())))
	got := w.revisions()
	if w.fault.at > 0 {
		got = slices.DeleteFunc(got, func(name string) bool { return !slices.Contains(want, name) })
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Fatalf("revisions are %q, want %q", got, want)
	}
}

// revisionOfSmall is what keeps the instancetype small for the VM web.
const revisionOfSmall = "web-small-v1beta1-uid-of-small-1"

// TestRevisionOfNobody: one that belongs to nobody becomes the VM's if it keeps the same, as after a
// deletion without dependents; else the VM says what is in its way.
func TestRevisionOfNobody(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*appsv1.ControllerRevision)
		want  string // empty: the VM runs
	}{
		"the same":         {func(*appsv1.ControllerRevision) {}, ""},
		"other content":    {func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte(`{"kind":"x"}`) }, "found existing ControllerRevision " + revisionOfSmall + " with other content"},
		"another's":        {func(r *appsv1.ControllerRevision) { r.OwnerReferences = []metav1.OwnerReference{run.OwnedBy(other())} }, "which belongs to VirtualMachine other"},
		"of no controller": {func(r *appsv1.ControllerRevision) { r.Labels = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fault{}, lag{})
			w.size("small", 1)
			w.prefer("linux", "sub")
			w.beginTyped("small")
			w.converge(w.hasSize(1, 1, "small"))
			left := &appsv1.ControllerRevision{}
			w.must(w.server.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: revisionOfSmall}, left))
			left.OwnerReferences, left.ResourceVersion = nil, ""

			w = newWorld(t, fault{}, lag{})
			w.size("small", 1)
			w.prefer("linux", "sub")
			test.spoil(left)
			w.must(w.server.Create(t.Context(), left))
			w.beginTyped("small")
			if test.want == "" {
				w.converge(w.hasSize(1, 1, "small"))
				return
			}
			var err error
			for range 4 {
				w.watch(&kubevirtv1.VirtualMachine{}, 0)
				_, err = w.reconciler().Reconcile(t.Context(), reconcile.Request{NamespacedName: web})
			}
			if c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Failure"); err == nil || c == nil || !strings.Contains(c.Message, test.want) {
				t.Errorf("error %v, and the failure is %v, want one with %q", err, c, test.want)
			}
		})
	}
}

func other() *kubevirtv1.VirtualMachine {
	return &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", UID: "other"}}
}

// TestRevisionOfAnEarlierVM: one that an earlier VM of the name has left is not taken for the VM's:
// the VM waits until it is gone.
func TestRevisionOfAnEarlierVM(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	w.size("small", 1)
	w.prefer("linux", "sub")
	earlier := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "earlier"}}
	left := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: revisionOfSmall, OwnerReferences: []metav1.OwnerReference{run.OwnedBy(earlier)},
	}}
	w.must(w.server.Create(t.Context(), left))
	w.beginTyped("small")
	r := w.reconciler()
	for range 4 {
		w.step(r)
	}
	if w.vm().Status.InstancetypeRef != nil || w.instance() != nil {
		t.Fatalf("the VM begins with another's revision: %+v", w.vm().Status)
	}
	w.must(w.server.Delete(t.Context(), left))
	w.converge(w.hasSize(1, 1, "small"))
}

// TestNamedRevision: the revision that a VM names counts, whatever the object has become.
func TestNamedRevision(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	w.size("small", 1)
	w.prefer("linux", "sub")
	w.beginTyped("small")
	w.converge(w.hasSize(1, 1, "small"))
	kept := w.vm().Status.InstancetypeRef.ControllerRevisionRef.Name
	w.change(func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Instancetype.RevisionName = kept })
	w.converge(w.hasSize(1, 1, "small"))
	if c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired"); c != nil {
		t.Errorf("the name of what is used needs a restart: %v", c)
	}
	w.change(func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Instancetype.RevisionName = "none" })
	w.converge(func() string {
		if c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Failure"); c == nil || c.Reason != reasonNoInstancetype || !strings.Contains(c.Message, "revisionName") {
			return fmt.Sprintf("the failure is %v", c)
		}
		if w.vm().Status.PrintableStatus != "Running" || w.instance() == nil {
			return "the guest does not run on"
		}
		return ""
	})
}
