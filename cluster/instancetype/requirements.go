package instancetype

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Unmet returns what the preference of a VM requires, and the VM does not have. The VM has been
// expanded; arch is the cluster's.
func Unmet(vm *kubevirtv1.VirtualMachine, t Types, arch string) (faults field.ErrorList) {
	if t.Preference == nil || t.Preference.Requirements == nil || vm.Spec.Template == nil {
		return nil
	}
	r, s := t.Preference.Requirements, &vm.Spec.Template.Spec
	if r.CPU != nil {
		faults = append(faults, fewProcessors(s, t, r.CPU.Guest)...)
	}
	if r.Memory != nil {
		at, has := field.NewPath("spec", "template", "spec", "domain", "memory"), memoryOf(&s.Domain)
		if t.Instancetype != nil {
			at = field.NewPath("spec", "instancetype")
		}
		if has.Cmp(r.Memory.Guest) < 0 {
			faults = append(faults, field.Invalid(at, has.String(), fmt.Sprintf("insufficient memory: the preference requires %s", r.Memory.Guest.String())))
		}
	}
	if s.Architecture != "" {
		arch = s.Architecture
	}
	if r.Architecture != nil && *r.Architecture != arch {
		faults = append(faults, field.Invalid(field.NewPath("spec", "template", "spec", "architecture"), arch, fmt.Sprintf("the preference requires %s", *r.Architecture)))
	}
	return faults
}

// fewProcessors says that there are fewer than required, of an instancetype or of those parts of
// the VM's topology that the preference counts.
func fewProcessors(s *kubevirtv1.VirtualMachineInstanceSpec, t Types, required int32) field.ErrorList {
	insufficient := func(at *field.Path, has int64, more string) *field.Error {
		return field.Invalid(at, has, fmt.Sprintf("insufficient CPU resources: the preference requires %d vCPUs%s", required, more))
	}
	if t.Instancetype != nil {
		if has := t.Instancetype.CPU.Guest; has < required {
			return field.ErrorList{insufficient(field.NewPath("spec", "instancetype"), int64(has), "")}
		}
		return nil
	}
	at, cpu := field.NewPath("spec", "template", "spec", "domain", "cpu"), s.Domain.CPU
	if cpu == nil {
		cpu = &kubevirtv1.CPU{}
	}
	parts := map[string]int32{"sockets": cpu.Sockets, "cores": cpu.Cores, "threads": cpu.Threads}
	counted, has := countedParts(t.Preference), int64(1)
	for _, name := range counted {
		has *= int64(max(parts[name], 1))
	}
	if has >= int64(required) {
		return nil
	}
	by := ", provided as " + strings.Join(counted, " times ") + ", which its preferredCPUTopology counts"
	if s.Domain.CPU == nil {
		return field.ErrorList{insufficient(at, has, by)}
	}
	var faults field.ErrorList
	for _, name := range counted {
		faults = append(faults, insufficient(at.Child(name), has, by))
	}
	return faults
}

// countedParts are those of a VM's own topology that a preference counts.
func countedParts(p *instancetypev1.VirtualMachinePreferenceSpec) []string {
	switch topology(p) {
	case instancetypev1.Cores:
		return []string{"cores"}
	case instancetypev1.Threads:
		return []string{"threads"}
	case instancetypev1.Spread:
		switch across, _ := spread(p); across {
		case instancetypev1.SpreadAcrossSocketsCores:
			return []string{"sockets", "cores"}
		case instancetypev1.SpreadAcrossCoresThreads:
			return []string{"cores", "threads"}
		}
		return []string{"sockets", "cores", "threads"}
	case instancetypev1.Any:
		return []string{"sockets", "cores", "threads"}
	}
	return []string{"sockets"}
}

// memoryOf is the guest's, or what it is given where it says nothing.
func memoryOf(d *kubevirtv1.DomainSpec) resource.Quantity {
	if d.Memory != nil && d.Memory.Guest != nil {
		return *d.Memory.Guest
	}
	for _, list := range []corev1.ResourceList{d.Resources.Requests, d.Resources.Limits} {
		if quantity, set := list[corev1.ResourceMemory]; set {
			return quantity
		}
	}
	return resource.Quantity{}
}
