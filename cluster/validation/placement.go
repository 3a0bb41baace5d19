package validation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// names checks those of the guest and of objects that the pod refers to.
func names(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	for _, label := range []struct{ name, value string }{{"hostname", s.Hostname}, {"subdomain", s.Subdomain}} {
		if label.value == "" {
			continue
		}
		for _, fault := range validation.IsDNS1123Label(label.value) {
			faults = append(faults, field.Invalid(at.Child(label.name), short(label.value), fault))
		}
	}
	for _, object := range []struct{ name, value string }{
		{"priorityClassName", s.PriorityClassName}, {"schedulerName", s.SchedulerName}, {"serviceAccountName", s.ServiceAccountName},
	} {
		if object.value != "" {
			faults = append(faults, subdomainName(object.value, at.Child(object.name))...)
		}
	}
	return faults
}

// Limits of a pod's DNS configuration, as Kubernetes has them.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchText  = 2048 // bytes, with a space between two of them
)

func dns(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	config := at.Child("dnsConfig")
	policies := []corev1.DNSPolicy{corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone}
	faults = oneOf(s.DNSPolicy, policies, at.Child("dnsPolicy"))
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		faults = append(faults, field.Required(config.Child("nameservers"), "with dnsPolicy None at least one has to be set"))
	}
	if s.DNSConfig == nil {
		return faults
	}
	if n := len(s.DNSConfig.Nameservers); n > maxNameservers {
		faults = append(faults, field.TooMany(config.Child("nameservers"), n, maxNameservers))
	}
	for i, server := range s.DNSConfig.Nameservers {
		if _, err := netip.ParseAddr(server); err != nil {
			faults = append(faults, field.Invalid(config.Child("nameservers").Index(i), short(server), "want an IP address"))
		}
	}
	if n := len(s.DNSConfig.Searches); n > maxSearches {
		faults = append(faults, field.TooMany(config.Child("searches"), n, maxSearches))
	}
	if len(strings.Join(s.DNSConfig.Searches, " ")) > maxSearchText {
		faults = append(faults, field.TooLong(config.Child("searches"), "", maxSearchText))
	}
	for i, domain := range s.DNSConfig.Searches {
		for _, fault := range validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(domain, ".")) {
			faults = append(faults, field.Invalid(config.Child("searches").Index(i), short(domain), fault))
		}
	}
	for i, option := range s.DNSConfig.Options {
		if option.Name == "" {
			faults = append(faults, field.Required(config.Child("options").Index(i).Child("name"), "name the option"))
		}
	}
	return faults
}

// placement checks what the scheduler reads. The pod that is made of it would be refused
// by the API server, and the instance would wait for ever.
func placement(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	return slices.Concat(
		metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector")),
		tolerations(s.Tolerations, at.Child("tolerations")),
		affinity(s.Affinity, at.Child("affinity")),
		spread(s.TopologySpreadConstraints, at.Child("topologySpreadConstraints")),
	)
}

func tolerations(all []corev1.Toleration, at *field.Path) (faults field.ErrorList) {
	for i, t := range all {
		toleration := at.Index(i)
		faults = append(faults, oneOf(t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}, toleration.Child("operator"))...)
		effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
		faults = append(faults, oneOf(t.Effect, effects, toleration.Child("effect"))...)
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			faults = append(faults, field.Invalid(toleration.Child("operator"), t.Operator, "without a key it has to be Exists, which tolerates all taints"))
		} else if t.Key != "" {
			faults = append(faults, metav1validation.ValidateLabelName(t.Key, toleration.Child("key"))...)
		}
		if t.Operator == corev1.TolerationOpExists && t.Value != "" {
			faults = append(faults, field.Invalid(toleration.Child("value"), short(t.Value), "with operator Exists it has to be empty"))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			faults = append(faults, field.Invalid(toleration.Child("effect"), t.Effect, "with tolerationSeconds it has to be NoExecute"))
		}
	}
	return faults
}

func affinity(a *corev1.Affinity, at *field.Path) (faults field.ErrorList) {
	if a == nil {
		return nil
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	if n := a.NodeAffinity; n != nil {
		node := at.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			terms := node.Child(required, "nodeSelectorTerms")
			if len(n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
				faults = append(faults, field.Required(terms, "at least one term has to be set"))
			}
			for i, term := range n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				faults = append(faults, nodeTerm(term, terms.Index(i))...)
			}
		}
		for i, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			faults = append(faults, weight(p.Weight, node.Child(preferred).Index(i))...)
			faults = append(faults, nodeTerm(p.Preference, node.Child(preferred).Index(i).Child("preference"))...)
		}
	}
	pods := func(needed []corev1.PodAffinityTerm, wanted []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i, term := range needed {
			faults = append(faults, podTerm(term, at.Child(required).Index(i))...)
		}
		for i, w := range wanted {
			faults = append(faults, weight(w.Weight, at.Child(preferred).Index(i))...)
			faults = append(faults, podTerm(w.PodAffinityTerm, at.Child(preferred).Index(i).Child("podAffinityTerm"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		pods(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		pods(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
	return faults
}

func weight(value int32, at *field.Path) field.ErrorList {
	if value < 1 || value > 100 {
		return field.ErrorList{field.Invalid(at.Child("weight"), value, "want 1 to 100")}
	}
	return nil
}

func nodeTerm(term corev1.NodeSelectorTerm, at *field.Path) (faults field.ErrorList) {
	for i, e := range term.MatchExpressions {
		expression := at.Child("matchExpressions").Index(i)
		faults = append(faults, metav1validation.ValidateLabelName(e.Key, expression.Child("key"))...)
		faults = append(faults, operator(e, expression)...)
	}
	for i, e := range term.MatchFields {
		if e.Key != metav1.ObjectNameField {
			faults = append(faults, field.NotSupported(at.Child("matchFields").Index(i).Child("key"), short(e.Key), []string{metav1.ObjectNameField}))
		}
	}
	return faults
}

func operator(e corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	values := at.Child("values")
	switch e.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(e.Values) == 0 {
			return field.ErrorList{field.Required(values, fmt.Sprintf("operator %s needs values", e.Operator))}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			return field.ErrorList{field.Forbidden(values, fmt.Sprintf("operator %s takes none", e.Operator))}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(e.Values) != 1 {
			return field.ErrorList{field.Required(values, fmt.Sprintf("operator %s takes one", e.Operator))}
		}
	default:
		known := []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		}
		return field.ErrorList{field.NotSupported(at.Child("operator"), short(e.Operator), known)}
	}
	return nil
}

func podTerm(term corev1.PodAffinityTerm, at *field.Path) (faults field.ErrorList) {
	selectors := metav1validation.LabelSelectorValidationOptions{}
	faults = append(faults, metav1validation.ValidateLabelSelector(term.LabelSelector, selectors, at.Child("labelSelector"))...)
	faults = append(faults, metav1validation.ValidateLabelSelector(term.NamespaceSelector, selectors, at.Child("namespaceSelector"))...)
	return append(faults, topologyKey(term.TopologyKey, at)...)
}

func topologyKey(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(at.Child("topologyKey"), "want a label of nodes, such as kubernetes.io/hostname")}
	}
	return metav1validation.ValidateLabelName(key, at.Child("topologyKey"))
}

func spread(all []corev1.TopologySpreadConstraint, at *field.Path) (faults field.ErrorList) {
	for i, c := range all {
		constraint := at.Index(i)
		if c.MaxSkew < 1 {
			faults = append(faults, field.Invalid(constraint.Child("maxSkew"), c.MaxSkew, "want 1 or more"))
		}
		actions := []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
		if !slices.Contains(actions, c.WhenUnsatisfiable) {
			faults = append(faults, field.NotSupported(constraint.Child("whenUnsatisfiable"), short(c.WhenUnsatisfiable), actions))
		}
		faults = append(faults, topologyKey(c.TopologyKey, constraint)...)
		faults = append(faults, metav1validation.ValidateLabelSelector(c.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, constraint.Child("labelSelector"))...)
	}
	return faults
}
