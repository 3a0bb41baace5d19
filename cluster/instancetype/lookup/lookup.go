// Package lookup reads the instancetypes and preferences of VirtualMachines, as they are now or as
// they were when a VM began with them, and what volumes say of them. Start reading at Types.
package lookup

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
)

// maxKept is how large an instancetype or preference may be, in bytes: each VM keeps one of its own, also where
// many small VMs name a large one.
const maxKept = 64 << 10

// Found is what a VM names.
type Found struct {
	instancetype.Types
	// Faults are of what is not there, or can't be read; what they are of is not in Types.
	Faults field.ErrorList
	// Used and Preferred are what the VM's status has to say of them, and Revisions what
	// has to be made before.
	Used, Preferred *kubevirtv1.InstancetypeStatusRef
	Revisions       []*appsv1.ControllerRevision
}

// Types returns what a VM names. The error says that it is unknown.
func Types(ctx context.Context, from client.Reader, vm *kubevirtv1.VirtualMachine) (Found, error) {
	var f Found
	for _, r := range instancetype.References(vm) {
		faults := r.Faults()
		if len(faults) == 0 && r.Matcher.Name == "" {
			faults = field.ErrorList{field.Required(r.Path().Child("name"), "nothing was taken from the volume of inferFromVolume: set it, or create the VM again")}
		}
		if len(faults) > 0 {
			f.Faults = append(f.Faults, faults...)
			continue
		}
		fault, err := f.find(ctx, from, vm, r)
		if err != nil {
			return f, err
		}
		if fault != nil {
			f.Faults = append(f.Faults, fault)
		}
	}
	return f, nil
}

func (f *Found) find(ctx context.Context, from client.Reader, vm *kubevirtv1.VirtualMachine, r instancetype.Reference) (*field.Error, error) {
	var fault *field.Error
	var err error
	name := r.Revision()
	if name == "" {
		name, fault, err = f.live(ctx, from, vm, r)
	} else {
		fault, err = f.frozen(ctx, from, vm, r, name)
	}
	if fault != nil || err != nil {
		return fault, err
	}
	if r.Preference {
		f.Preferred = r.Status(name)
	} else {
		f.Used = r.Status(name)
	}
	return nil, nil
}

// frozen reads what a VM began with.
func (f *Found) frozen(ctx context.Context, from client.Reader, vm *kubevirtv1.VirtualMachine, r instancetype.Reference, name string) (*field.Error, error) {
	at := r.Path().Child("revisionName")
	revision := &appsv1.ControllerRevision{}
	switch err := from.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, revision); {
	case apierrors.IsNotFound(err):
		return field.Invalid(at, name, fmt.Sprintf("the ControllerRevision, which keeps the VM's %s, does not exist in namespace %s: restore it, or name another %s", r.What(), vm.Namespace, r.What())), nil
	case err != nil:
		return nil, fmt.Errorf("read ControllerRevision %s/%s: %w", vm.Namespace, name, err)
	}
	if err := r.ReadRevision(revision, &f.Types); err != nil {
		return field.Invalid(at, name, err.Error()), nil
	}
	return nil, nil
}

// live reads an object as it is now, and returns the name of the revision that is to keep it.
func (f *Found) live(ctx context.Context, from client.Reader, vm *kubevirtv1.VirtualMachine, r instancetype.Reference) (string, *field.Error, error) {
	kind, _ := r.Kind()
	object, meta, spec := newObject(kind)
	key := client.ObjectKey{Name: r.Matcher.Name}
	if instancetype.Namespaced(kind) {
		key.Namespace = vm.Namespace
	}
	switch err := from.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		detail := fmt.Sprintf("%s %s", kind, r.Matcher.Name)
		if key.Namespace != "" {
			detail += ", in namespace " + key.Namespace
		}
		return "", &field.Error{Type: field.ErrorTypeNotFound, Field: r.Path().Child("name").String(), BadValue: r.Matcher.Name, Detail: detail}, nil
	case err != nil:
		return "", nil, fmt.Errorf("read %s %s: %w", kind, key, err)
	}
	revision, err := instancetype.NewRevision(vm, kind, meta, spec)
	if err != nil {
		return "", nil, fmt.Errorf("keep %s %s: %w", kind, key, err)
	}
	if n := len(revision.Data.Raw); n > maxKept {
		return "", field.Invalid(r.Path().Child("name"), r.Matcher.Name, fmt.Sprintf("%s %s has %d bytes, and a VM keeps %d at most: make it smaller", kind, r.Matcher.Name, n, maxKept)), nil
	}
	switch spec := spec.(type) {
	case *instancetypev1.VirtualMachineInstancetypeSpec:
		f.Types.Instancetype = spec
	case *instancetypev1.VirtualMachinePreferenceSpec:
		f.Types.Preference = spec
	}
	f.Revisions = append(f.Revisions, revision)
	return revision.Name, nil, nil
}

// newObject is an empty object of one of the kinds, with the parts that matter.
func newObject(kind string) (client.Object, *metav1.ObjectMeta, any) {
	switch kind {
	case instancetypev1.KindInstancetype:
		o := &instancetypev1.VirtualMachineInstancetype{}
		return o, &o.ObjectMeta, &o.Spec
	case instancetypev1.KindPreference:
		o := &instancetypev1.VirtualMachinePreference{}
		return o, &o.ObjectMeta, &o.Spec
	case instancetypev1.KindClusterPreference:
		o := &instancetypev1.VirtualMachineClusterPreference{}
		return o, &o.ObjectMeta, &o.Spec
	}
	o := &instancetypev1.VirtualMachineClusterInstancetype{}
	return o, &o.ObjectMeta, &o.Spec
}
