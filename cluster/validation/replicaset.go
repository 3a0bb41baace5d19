package validation

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// ReplicaSet returns the faults and warnings of a VirtualMachineInstanceReplicaSet that is created (old is nil) or updated:
// those of the instance that its template makes among them. An update has those faults alone that the old
// object had not, so that one from before a rule can still be scaled.
func ReplicaSet(set, old *kubevirtv1.VirtualMachineInstanceReplicaSet, r Request) (field.ErrorList, []string) {
	if set.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(set.Spec, old.Spec) {
		return nil, nil
	}
	faults, warnings := r.replicaSet(set)
	if old != nil && len(faults) > 0 {
		before, _ := r.replicaSet(old)
		faults = without(faults, before)
	}
	return bounded(faults, warnings)
}

func (r Request) replicaSet(set *kubevirtv1.VirtualMachineInstanceReplicaSet) (faults field.ErrorList, warnings []string) {
	at, template := field.NewPath("spec"), set.Spec.Template
	if template == nil {
		return append(faults, field.Required(at.Child("template"), "what the instances are has to be set")), nil
	}
	faults = templateMetadata(&template.ObjectMeta, at.Child("template", "metadata"))
	faults = append(faults, ownSelector(set.Spec.Selector, template.Labels, at.Child("selector"))...)
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	vmi.Namespace, vmi.Name = set.Namespace, set.Name
	r.Root = at.Child("template")
	more, warnings := Instance(vmi, nil, r)
	return append(faults, more...), warnings
}

// ownSelector wants a selector that selects something, and what the template makes: or instances were made for ever.
func ownSelector(s *metav1.LabelSelector, made map[string]string, at *field.Path) field.ErrorList {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(at, "by what labels the set knows its instances has to be set")}
	}
	faults := labelSelector(s, at)
	if selector, err := metav1.LabelSelectorAsSelector(s); err == nil && !selector.Matches(labels.Set(made)) {
		faults = append(faults, field.Invalid(at, field.OmitValueType{}, "does not match the labels of spec.template.metadata.labels"))
	}
	return faults
}
