package validation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// maxPoolName leaves room for the indexes of members in names that have 63 characters at most, as those of
// guests' hosts.
const maxPoolName = 63 - len("-9999999")

// Pool returns the faults that a VirtualMachinePool has beside those of its template's VM, for which TemplateMachine
// and PoolTemplate are. old is nil for one that is created; an update has those faults alone that the old
// object had not.
func Pool(pool, old *poolv1.VirtualMachinePool) field.ErrorList {
	faults := poolFaults(pool)
	if old != nil {
		faults = without(faults, poolFaults(old))
		if at := field.NewPath("spec", "selector"); !equality.Semantic.DeepEqual(pool.Spec.Selector, old.Spec.Selector) {
			faults = append(faults, field.Invalid(at, field.OmitValueType{}, "can't be changed: delete the pool with --cascade=orphan, and make it again"))
		}
	}
	return faults[:min(len(faults), most)]
}

func poolFaults(pool *poolv1.VirtualMachinePool) (faults field.ErrorList) {
	at := field.NewPath("spec")
	if len(pool.Name) > maxPoolName {
		faults = append(faults, field.TooLong(field.NewPath("metadata", "name"), "", maxPoolName))
	}
	template := pool.Spec.VirtualMachineTemplate
	if template == nil {
		return append(faults, field.Required(at.Child("virtualMachineTemplate"), "what the VMs are has to be set"))
	}
	faults = append(faults, templateMetadata(&template.ObjectMeta, at.Child("virtualMachineTemplate", "metadata"))...)
	if s := pool.Spec.Selector; s != nil {
		below := at.Child("selector")
		faults = append(faults, labelSelector(s, below)...)
		if selector, err := metav1.LabelSelectorAsSelector(s); err == nil && !selector.Matches(labels.Set(template.Labels)) {
			faults = append(faults, field.Invalid(below, field.OmitValueType{}, "does not match the labels of spec.virtualMachineTemplate.metadata.labels"))
		}
	}
	faults = append(faults, unavailable(pool.Spec.MaxUnavailable, at.Child("maxUnavailable"))...)
	if s := pool.Spec.ScaleInStrategy; s != nil && s.Proactive != nil {
		faults = append(faults, selection(s.Proactive.SelectionPolicy, at.Child("scaleInStrategy", "proactive", "selectionPolicy"))...)
	}
	if s := pool.Spec.UpdateStrategy; s != nil && s.Proactive != nil {
		faults = append(faults, selection(s.Proactive.SelectionPolicy, at.Child("updateStrategy", "proactive", "selectionPolicy"))...)
	}
	if h := pool.Spec.Autohealing; h != nil {
		faults = append(faults, positive(h.MinFailingToStartDuration, at.Child("autohealing", "minFailingToStartDuration"))...)
	}
	if s := pool.Spec.Standby; s != nil && s.Replicas > 0 {
		faults = append(faults, standby(&template.Spec, s.State, at.Child("standby"))...)
	}
	if p := pool.Spec.Preservation; p != nil {
		faults = append(faults, positive(p.TTL, at.Child("preservation", "ttl"))...)
	}
	return faults
}

// unavailable wants a number or a percentage that lets an update go on.
func unavailable(n *intstr.IntOrString, at *field.Path) field.ErrorList {
	switch {
	case n == nil, n.Type == intstr.Int && n.IntVal > 0:
		return nil
	case n.Type == intstr.Int:
		return field.ErrorList{field.Invalid(at, n.IntVal, "has to be at least 1, or no VM could be updated")}
	}
	text, is := strings.CutSuffix(n.StrVal, "%")
	if percent, err := strconv.Atoi(text); !is || err != nil || percent < 1 || percent > 100 {
		return field.ErrorList{field.Invalid(at, short(n.StrVal), "has to be a number, or a percentage from 1% to 100%")}
	}
	return nil
}

// standby wants VMs that start by themselves: one that stands by has booted once. A guest that is paused passes no liveness
// probe, as for virtctl pause.
func standby(vm *kubevirtv1.VirtualMachineSpec, state poolv1.StandbyState, at *field.Path) (faults field.ErrorList) {
	if t := vm.Template; state == poolv1.StandbyRunning && t != nil && t.Spec.LivenessProbe != nil && t.Spec.LivenessProbe.GuestAgentPing == nil {
		faults = append(faults, field.Forbidden(at.Child("state"), "a guest that is paused fails its livenessProbe, and its pod is restarted: leave that out, or use Hibernated or Halted"))
	}
	//lint:ignore SA1019 manifests still have the old field
	switch running := vm.Running; {
	case running != nil && *running:
		return faults
	case vm.RunStrategy != nil && slices.Contains([]kubevirtv1.RunStrategy{kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce}, *vm.RunStrategy):
		return faults
	}
	return append(faults, field.Forbidden(at, "VMs that stand by boot once: set spec.virtualMachineTemplate.spec.runStrategy to Always, RerunOnFailure or Once"))
}

func positive(d *metav1.Duration, at *field.Path) field.ErrorList {
	if d == nil || d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, d.Duration.String(), "has to be longer than 0s")}
}

func selection(p *poolv1.VirtualMachinePoolSelectionPolicy, at *field.Path) (faults field.ErrorList) {
	if p == nil {
		return nil
	}
	for i, o := range p.OrderedPolicies {
		below := at.Child("orderedPolicies").Index(i)
		faults = append(faults, labelSelector(o.LabelSelector, below.Child("labelSelector"))...)
		faults = append(faults, labelSelector(o.NodeSelector, below.Child("nodeSelector"))...)
	}
	if p.Selectors == nil {
		return faults
	}
	below := at.Child("selectors")
	faults = append(faults, labelSelector(p.Selectors.LabelSelector, below.Child("labelSelector"))...)
	for i, r := range p.Selectors.NodeSelectorRequirementMatcher {
		faults = append(faults, nodeRequirement(r, below.Child("nodeSelectorRequirementMatcher").Index(i))...)
	}
	return faults
}

func labelSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

// nodeRequirement checks one as Kubernetes does in pods.
func nodeRequirement(r corev1.NodeSelectorRequirement, at *field.Path) (faults field.ErrorList) {
	for _, fault := range validation.IsQualifiedName(r.Key) {
		faults = append(faults, field.Invalid(at.Child("key"), short(r.Key), fault))
	}
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			faults = append(faults, field.Required(values, "operators In and NotIn need values"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			faults = append(faults, field.Forbidden(values, "operators Exists and DoesNotExist have no values"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		number := len(r.Values) == 1
		if number {
			_, err := strconv.ParseInt(r.Values[0], 10, 64)
			number = err == nil
		}
		if !number {
			faults = append(faults, field.Invalid(values, field.OmitValueType{}, "operators Gt and Lt need one number"))
		}
	default:
		faults = append(faults, field.NotSupported(at.Child("operator"), short(r.Operator), []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		}))
	}
	return faults
}

// TemplateMachine is the VM that a pool's template makes of its first index, but for names that the index is
// appended to; nil: it has no template.
func TemplateMachine(pool *poolv1.VirtualMachinePool) *kubevirtv1.VirtualMachine {
	template := pool.Spec.VirtualMachineTemplate
	if template == nil {
		return nil
	}
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	vm.Namespace, vm.Name = pool.Namespace, fmt.Sprintf("%s-0", pool.Name)
	return vm
}

// PoolTemplate is where the VM of its template is in a pool: the Root of a Request about it.
func PoolTemplate() *field.Path { return field.NewPath("spec", "virtualMachineTemplate") }
