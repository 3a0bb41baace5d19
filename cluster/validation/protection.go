package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// ProtectInstance returns those faults of an instance that other webhooks may not let pass in vmlet's
// place: changes of what runs, and what controllers alone write.
func ProtectInstance(vmi, old *kubevirtv1.VirtualMachineInstance, r Request) field.ErrorList {
	switch {
	case vmi.DeletionTimestamp != nil || r.Own:
		return nil
	case old != nil:
		return r.instanceUpdate(vmi, old)
	}
	faults := r.controllersOnly(&vmi.Spec, field.NewPath("spec"))
	return append(faults, reservedLabels(vmi.Labels, nil, field.NewPath("metadata", "labels"))...)
}

// ProtectMachine returns those faults of a VirtualMachine that other webhooks may not let pass in vmlet's
// place: what would lose a guest's saved memory, and what controllers alone write.
func ProtectMachine(vm, old *kubevirtv1.VirtualMachine, r Request) (faults field.ErrorList) {
	if vm.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(vm.Spec, old.Spec) {
		return nil
	}
	if vm.Spec.Template != nil {
		faults = Request{}.controllersOnly(&vm.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	}
	if old != nil {
		asleep, _ := Request{}.asleep(vm, old)
		faults = append(faults, asleep...)
	}
	return faults
}

// controllersOnly refuses fields of an instance that controllers alone write.
func (r Request) controllersOnly(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	faults, _ := unsupported(*s, at, r.instanceFields())
	return slices.DeleteFunc(faults, func(f *field.Error) bool {
		return !slices.ContainsFunc(byController(), func(row string) bool {
			name, _, _ := strings.Cut(row, "=")
			return f.Field == at.Child(name).String()
		})
	})
}
