package pool

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// ordered returns the members that a policy lets be acted on, those first that come first.
func ordered(all []member, policy *poolv1.VirtualMachinePoolSelectionPolicy) []member {
	if policy == nil {
		policy = new(poolv1.VirtualMachinePoolSelectionPolicy)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m member) bool { return !chosen(m, policy.Selectors) })
	by := poolv1.SortRandom
	for _, p := range []*poolv1.SortPolicy{policy.SortPolicy, policy.BasePolicy} {
		if p != nil {
			by = *p
		}
	}
	places := make(map[string]int, len(all))
	for _, m := range all {
		places[m.vm.Name] = place(m, policy.OrderedPolicies)
	}
	slices.SortFunc(all, func(a, b member) int {
		return cmp.Or(cmp.Compare(places[a.vm.Name], places[b.vm.Name]), compare(a, b, by), cmp.Compare(a.index, b.index), cmp.Compare(a.vm.Name, b.vm.Name))
	})
	return all
}

// place is the first policy that a member matches; of one that matches none it is behind them all.
func place(m member, policies []poolv1.VirtualMachinePoolOrderedPolicy) int {
	for i, p := range policies {
		if p.LabelSelector != nil && matches(p.LabelSelector, m.vm.Labels) ||
			p.NodeSelector != nil && m.node != nil && matches(p.NodeSelector, m.node.Labels) {
			return i
		}
	}
	return len(policies)
}

func matches(s *metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of)) // admission refuses others
}

// chosen says whether selectors let a member be acted on.
func chosen(m member, s *poolv1.VirtualMachinePoolSelectors) bool {
	if s == nil {
		return true
	}
	template := m.vm.Spec.Template
	if template == nil {
		template = new(kubevirtv1.VirtualMachineInstanceTemplateSpec)
	}
	if s.LabelSelector != nil && !matches(s.LabelSelector, m.vm.Labels) && !matches(s.LabelSelector, template.Labels) {
		return false
	}
	at := template.Spec.NodeSelector
	if m.node != nil {
		at = m.node.Labels
	}
	return !slices.ContainsFunc(s.NodeSelectorRequirementMatcher, func(r corev1.NodeSelectorRequirement) bool { return !meets(at, r) })
}

// meets tells whether labels are as one requirement on a node has them.
func meets(of map[string]string, r corev1.NodeSelectorRequirement) bool {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
	return err == nil && requirement.Matches(labels.Set(of))
}

func compare(a, b member, by poolv1.SortPolicy) int {
	age := a.vm.CreationTimestamp.Compare(b.vm.CreationTimestamp.Time)
	switch by {
	case poolv1.SortOldest:
		return age
	case poolv1.SortNewest:
		return -age
	case poolv1.SortAscending:
		return cmp.Compare(a.index, b.index)
	case poolv1.SortDescending:
		return cmp.Compare(b.index, a.index)
	}
	return cmp.Or(cmp.Compare(service(a), service(b)), cmp.Compare(lot(a), lot(b)))
}

// service is how much is lost if a member goes.
func service(m member) int {
	switch {
	case m.off():
		return 0
	case !m.vm.Status.Created:
		return 1
	case !m.ready():
		return 2
	case m.node != nil && m.node.Spec.Unschedulable: // it is being drained, or is about to be
		return 3
	}
	return 4
}

// lot is drawn once for each VM, so that a decision that is taken again is the same.
func lot(m member) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(m.vm.UID))
	hash.Write([]byte(strconv.Itoa(int(m.index))))
	return hash.Sum64()
}
