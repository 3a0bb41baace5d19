package validation

import (
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
	"github.com/vmlet/vmlet/cluster/imports"
)

// machineTable is the table of all fields of a VirtualMachine's spec.
func machineTable() []fields.Field {
	table := fields.Machine()
	for _, f := range fields.Instance() {
		f.Path = "template.spec." + f.Path
		table = append(table, f)
	}
	return table
}

func (r Request) machine(vm *kubevirtv1.VirtualMachine) (field.ErrorList, []string) {
	at := r.Root.Child("spec")
	faults, warnings := unsupported(vm.Spec, at, machineTable())
	//lint:ignore SA1019 manifests still have the old field
	if vm.Spec.Running != nil {
		warnings = append(warnings, at.Child("running").String()+" is deprecated: use "+at.Child("runStrategy").String()+", Always in place of true and Halted in place of false")
	}
	faults = append(faults, runStrategy(vm.Spec.RunStrategy, at.Child("runStrategy"))...)
	if vm.Spec.Template == nil {
		return append(faults, field.Required(at.Child("template"), "what the VM is has to be set")), warnings
	}
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: vm.Spec.Template.ObjectMeta, Spec: vm.Spec.Template.Spec}
	vmi.Name, vmi.Namespace = vm.Name, vm.Namespace
	place := r.template()
	faults = append(faults, r.hibernation(vm, vmi, at)...)
	faults = append(faults, r.dataVolumes(vm, at.Child("dataVolumeTemplates"))...)
	faults = append(faults, templateMetadata(&vm.Spec.Template.ObjectMeta, at.Child("template", "metadata"))...)
	annotationFaults, annotationWarnings := r.annotations(vmi.Annotations, &vmi.Spec, place.Annotations)
	faults, warnings = append(faults, annotationFaults...), append(warnings, annotationWarnings...)

	own := r.spec(vmi, place.Spec)
	warnings = append(warnings, differences(&vmi.Spec, place.Spec)...)
	// A VM that can't start yet can be kept: tools make it, and set its size later.
	size := place.Spec.Child("domain", "memory", "guest").String()
	sized := slices.DeleteFunc(slices.Clone(own), func(f *field.Error) bool {
		return f.Type == field.ErrorTypeRequired && f.Field == size
	})
	faults = append(faults, sized...)
	switch {
	case len(own) == 0 && len(annotationFaults) == 0:
		faults = append(faults, r.plan(vmi, place)...)
	case len(sized) < len(own) && vm.Spec.Instancetype == nil:
		warnings = append(warnings, size+" is not set, nor is resources.requests.memory: the VM can't be started before one of them is")
	}
	return faults, warnings
}

func runStrategy(strategy *kubevirtv1.RunStrategy, at *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	switch *strategy {
	case kubevirtv1.RunStrategyWaitAsReceiver:
		return nil // refused by the table
	}
	known := []kubevirtv1.RunStrategy{
		kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual,
		kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyOnce, kubevirtv1.RunStrategyHibernate,
	}
	if *strategy == "" {
		return field.ErrorList{field.NotSupported(at, *strategy, known)}
	}
	return oneOf(*strategy, known, at)
}

// dataVolumes wants each template complete, and used by a volume: one that is not would be
// filled and never read.
func (r Request) dataVolumes(vm *kubevirtv1.VirtualMachine, at *field.Path) (faults field.ErrorList) {
	if len(vm.Spec.DataVolumeTemplates) == 0 {
		return nil
	}
	seen := make(map[string]bool)
	for i, t := range vm.Spec.DataVolumeTemplates {
		name, spec := at.Index(i).Child("metadata", "name"), at.Index(i).Child("spec")
		switch {
		case t.Name == "":
			faults = append(faults, field.Required(name, "the DataVolume needs a name"))
		case seen[t.Name]:
			faults = append(faults, field.Duplicate(name, t.Name))
		default:
			faults = append(faults, subdomainName(t.Name, name)...)
			if !usesClaim(vm.Spec.Template.Spec.Volumes, t.Name) {
				faults = append(faults, field.Invalid(name, t.Name, "no volume uses the DataVolume: add a dataVolume volume of this name to spec.template.spec.volumes"))
			}
		}
		seen[t.Name] = true
		if (t.Spec.PVC == nil) == (t.Spec.Storage == nil) {
			faults = append(faults, field.Invalid(spec, field.OmitValueType{}, "exactly one of storage and pvc has to be set"))
		}
		if (t.Spec.Source == nil) == (t.Spec.SourceRef == nil) && !imports.StorageFills(&t.Spec) {
			faults = append(faults, field.Invalid(spec, field.OmitValueType{}, "exactly one of source and sourceRef has to be set"))
		}
		if !r.HasCDI {
			faults = append(faults, imports.Faults(&t.Spec, vm.Namespace, spec)...)
		}
	}
	return faults
}

func usesClaim(volumes []kubevirtv1.Volume, name string) bool {
	return slices.ContainsFunc(volumes, func(v kubevirtv1.Volume) bool {
		return v.DataVolume != nil && v.DataVolume.Name == name ||
			v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name
	})
}

// templateMetadata is free-form in the definition, and an instance is not.
func templateMetadata(meta *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	return append(metav1validation.ValidateLabels(meta.Labels, at.Child("labels")),
		apivalidation.ValidateAnnotations(meta.Annotations, at.Child("annotations"))...)
}

// oneOf wants one of the known values; the empty one is a default's.
func oneOf[T ~string](value T, known []T, at *field.Path) field.ErrorList {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, short(value), known)}
}

func subdomainName(name string, at *field.Path) (faults field.ErrorList) {
	for _, fault := range validation.IsDNS1123Subdomain(name) {
		faults = append(faults, field.Invalid(at, short(name), fault))
	}
	return faults
}

// required is subdomainName of an object's name that has to be set.
func required(name, what string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, fmt.Sprintf("the name of the %s has to be set", what))}
	}
	return subdomainName(name, at)
}

// short is a value as messages quote it.
func short[T ~string](value T) T {
	const most = 80
	if len(value) > most {
		return value[:most] + "…"
	}
	return value
}
