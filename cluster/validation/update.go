package validation

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
)

// instanceUpdate refuses that users change an instance's spec: it is what runs.
func (r Request) instanceUpdate(vmi, old *kubevirtv1.VirtualMachineInstance) field.ErrorList {
	if r.Own {
		return nil
	}
	advice := "the spec of an instance can't be changed: delete it and create it with the new spec"
	for _, owner := range old.OwnerReferences {
		if owner.Kind == "VirtualMachine" && owner.Controller != nil && *owner.Controller {
			advice = "the spec of an instance can't be changed: change spec.template of the VirtualMachine " + owner.Name + " and restart it"
		}
	}
	var faults field.ErrorList
	for _, at := range changes(reflect.ValueOf(vmi.Spec), reflect.ValueOf(old.Spec), field.NewPath("spec")) {
		faults = append(faults, field.Forbidden(at, advice))
	}
	notes := field.NewPath("metadata", "annotations") // they count until the instance has its pod
	now, _ := r.annotations(vmi.Annotations, &vmi.Spec, notes)
	before, _ := r.annotations(old.Annotations, &old.Spec, notes)
	return slices.Concat(faults, reservedLabels(vmi.Labels, old.Labels, field.NewPath("metadata", "labels")), without(now, before))
}

// changes returns the fields that differ between two values of one type, as deep as
// structs of the API go; lists and maps are one field.
func changes(a, b reflect.Value, at *field.Path) (paths []*field.Path) {
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	if a.Kind() != reflect.Struct || !ours(a.Type()) {
		if !equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
			paths = append(paths, at)
		}
		return paths
	}
	for i := range a.NumField() {
		below := at
		if name, inline := fields.Name(a.Type().Field(i)); !inline {
			below = at.Child(name)
		}
		paths = append(paths, changes(a.Field(i), b.Field(i), below)...)
	}
	return paths
}
