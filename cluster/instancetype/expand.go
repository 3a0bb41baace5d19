// Package instancetype lays instancetypes and preferences over VirtualMachines: an instancetype
// gives a VM its size, and may set nothing that the VM sets, too; a preference fills what the VM
// leaves open. It also knows what a VM's matchers name, and the ControllerRevisions in which a VM
// keeps what it once began with.
//
// It is pure: package lookup reads the objects. What the result asks for that vmlet can't do is for
// package validation to say. Start reading at Expand.
package instancetype

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/validation/field"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Types are what is laid over a VM; each may be nil.
type Types struct {
	Instancetype *instancetypev1.VirtualMachineInstancetypeSpec
	Preference   *instancetypev1.VirtualMachinePreferenceSpec
}

// Expand returns the VM with what its types say in its template, or all that both the VM and its
// instancetype set, or that fits no processor topology. The VM stays as it is, and so do its
// matchers in what is returned; without types that is the VM itself.
func Expand(vm *kubevirtv1.VirtualMachine, t Types) (*kubevirtv1.VirtualMachine, field.ErrorList) {
	if vm.Spec.Template == nil || t.Instancetype == nil && t.Preference == nil {
		return vm, nil
	}
	to := vm.DeepCopy()
	if t.Instancetype != nil {
		if faults := (sizing{of: *t.Instancetype.DeepCopy(), name: nameOf(vm.Spec.Instancetype)}).apply(to.Spec.Template, t.Preference); len(faults) > 0 {
			return nil, faults
		}
	}
	if t.Preference != nil {
		prefer(&to.Spec, t.Preference.DeepCopy())
	}
	return to, nil
}

func nameOf(m *kubevirtv1.InstancetypeMatcher) string {
	if m == nil {
		return ""
	}
	return m.Name
}

// sizing lays an instancetype over a template.
type sizing struct {
	of     instancetypev1.VirtualMachineInstancetypeSpec
	name   string
	faults field.ErrorList
}

// apply changes the template, unless it returns faults: the fields that can't be the VM's and the
// instancetype's at a time, by the paths that KubeVirt reports.
func (s sizing) apply(t *kubevirtv1.VirtualMachineInstanceTemplateSpec, preference *instancetypev1.VirtualMachinePreferenceSpec) field.ErrorList {
	at := field.NewPath("spec", "template", "spec")
	s.place(&t.Spec, at)
	s.processors(&t.Spec.Domain, at.Child("domain"))
	s.memory(&t.Spec.Domain, at.Child("domain"))
	s.devices(&t.Spec.Domain, at.Child("domain"))
	notes := field.NewPath("spec", "template", "metadata", "annotations")
	for key, value := range s.of.Annotations {
		if own, set := t.Annotations[key]; set && own != value {
			s.conflict(notes.Key(key), own)
		}
	}
	cpu, fault := topologyOf(s.of.CPU.Guest, preference)
	if fault != nil {
		s.faults = append(s.faults, fault)
	}
	if len(s.faults) > 0 {
		return s.faults
	}
	t.Spec.Domain.CPU.Sockets, t.Spec.Domain.CPU.Cores, t.Spec.Domain.CPU.Threads = cpu.Sockets, cpu.Cores, cpu.Threads
	if len(s.of.Annotations) > 0 && t.Annotations == nil {
		t.Annotations = make(map[string]string)
	}
	maps.Copy(t.Annotations, s.of.Annotations)
	return nil
}

// conflict notes that the VM sets what is the instancetype's.
func (s *sizing) conflict(at *field.Path, value any) { s.conflicts(at, value, "it") }

// conflicts is conflict, with what the instancetype sets that the VM's field belongs to.
func (s *sizing) conflicts(at *field.Path, value any, with string) {
	s.faults = append(s.faults, field.Invalid(at, value, fmt.Sprintf("conflicts with selected instance type %s, which sets %s: leave it out", s.name, with)))
}

// take has a field of the VM be the instancetype's, where that has one and the VM has none.
func take[T any](s *sizing, to **T, from *T, at *field.Path) {
	switch {
	case from == nil:
	case *to != nil:
		s.conflict(at, field.OmitValueType{})
	default:
		*to = from
	}
}

// takeValue is take of a field whose zero value is none.
func takeValue[T comparable](s *sizing, to *T, from *T, at *field.Path) {
	var none T
	switch {
	case from == nil:
	case *to != none:
		s.conflict(at, *to)
	default:
		*to = *from
	}
}
