// Package validation finds all faults of VirtualMachines and VirtualMachineInstances at
// once, each by its path, as admission answers with them. It is pure, and takes objects
// before and after their defaults. What the definitions in deploy/crd refuse by themselves
// (types, values of enums, which of several fields may be set) is not looked at again.
//
// Fields that vmlet doesn't support are not checked but refused or ignored by their rows in
// a table: start reading at fields.Machine and fields.Instance.
package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
)

// Request is what is known of a request beside its objects. Its functions may be called
// concurrently if the package's are.
type Request struct {
	Configuration configuration.Configuration
	// HasCDI says whether CDI's DataVolumes are defined in the cluster.
	HasCDI bool
	// Own says whether one of vmlet's own ServiceAccounts makes the request.
	Own bool
	// VMMs and Hypervisors are the names that annotations may choose from.
	VMMs, Hypervisors []string
	// Root is where the VirtualMachine or the instance is in the object that the user writes; nil: it is
	// that object.
	Root *field.Path
}

// Machine returns the faults and warnings of a VirtualMachine that is created (old is nil)
// or updated. An update has those faults alone that the old object had not, so that an
// object from before a rule can still be stopped and changed; without a change of the spec
// it has no warnings. An object that is being deleted has none of both.
func Machine(vm, old *kubevirtv1.VirtualMachine, r Request) (field.ErrorList, []string) {
	if vm.DeletionTimestamp != nil {
		return nil, nil
	}
	if old != nil && equality.Semantic.DeepEqual(vm.Spec, old.Spec) {
		return nil, nil
	}
	faults, warnings := r.machine(vm)
	if old != nil && len(faults) > 0 {
		before, _ := r.machine(old)
		faults = without(faults, before)
	}
	if old != nil {
		moreFaults, moreWarnings := r.asleep(vm, old)
		faults, warnings = append(faults, moreFaults...), slices.Concat(warnings, moreWarnings, r.boots(vm, old))
	}
	return bounded(faults, warnings)
}

// Instance returns the faults and warnings of a VirtualMachineInstance that is created (old
// is nil) or updated. An object that is being deleted has none of both.
func Instance(vmi, old *kubevirtv1.VirtualMachineInstance, r Request) (field.ErrorList, []string) {
	if vmi.DeletionTimestamp != nil {
		return nil, nil
	}
	if old != nil {
		return bounded(r.instanceUpdate(vmi, old), nil)
	}
	at, notes := r.Root.Child("spec"), r.Root.Child("metadata", "annotations")
	faults, warnings := unsupported(vmi.Spec, at, r.instanceFields())
	faults = append(faults, r.evacuable(&vmi.Spec, at)...)
	if !r.Own {
		faults = append(faults, reservedLabels(vmi.Labels, nil, r.Root.Child("metadata", "labels"))...)
	}
	annotationFaults, annotationWarnings := r.annotations(vmi.Annotations, &vmi.Spec, notes)
	own := append(annotationFaults, r.spec(vmi, at)...)
	faults = append(faults, own...)
	if len(own) == 0 {
		faults = append(faults, r.plan(vmi, convert.Place{Spec: at, Annotations: notes})...)
	}
	return bounded(faults, slices.Concat(warnings, annotationWarnings, differences(&vmi.Spec, at)))
}

// spec checks the supported fields of an instance's spec at the path.
func (r Request) spec(vmi *kubevirtv1.VirtualMachineInstance, at *field.Path) field.ErrorList {
	s, domain := &vmi.Spec, at.Child("domain")
	return slices.Concat(
		processor(s, domain),
		memory(s, domain),
		resources(s, domain.Child("resources")),
		r.machineType(s, at),
		r.onARM(s, domain),
		r.firmware(s, domain.Child("firmware")),
		features(s.Domain.Features, domain.Child("features")),
		disks(s, domain.Child("devices", "disks")),
		bootOrder(s, domain.Child("devices")),
		otherDevices(s, domain.Child("devices")),
		volumes(s, at.Child("volumes")),
		r.interfaces(s, at),
		probes(s, at),
		credentials(s, at.Child("accessCredentials")),
		start(s, at),
		names(s, at),
		dns(s, at),
		placement(s, at),
	)
}

// most is how many faults and how many warnings a request is answered with: more help
// nobody, and an object has room for many.
const most = 100

func bounded(faults field.ErrorList, warnings []string) (field.ErrorList, []string) {
	return faults[:min(len(faults), most)], warnings[:min(len(warnings), most)]
}

// without returns the faults that are not among the earlier ones.
func without(faults, earlier field.ErrorList) field.ErrorList {
	known := make(map[string]bool, len(earlier))
	for _, f := range earlier {
		known[f.Error()] = true
	}
	return slices.DeleteFunc(faults, func(f *field.Error) bool { return known[f.Error()] })
}
