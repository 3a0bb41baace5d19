package launcher

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// nodeSelector is the instance's, the cluster's, and what the guest needs of its node by the
// labels that agents write. Where both say something of a label the cluster's word counts.
func (l *launcher) nodeSelector() map[string]string {
	all := maps.Clone(l.vmi.Spec.NodeSelector)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, l.Configuration.NodeSelectors)
	maps.Copy(all, l.Configuration.Placement.NodeSelector)
	all[contract.LabelSchedulable] = "true"
	all[corev1.LabelArchStable] = convert.Architecture(l.Input)
	if m := l.vmi.Spec.Domain.Machine; m != nil && m.Type != "" && convert.Traits(l.vmi, l.Configuration, convert.Architecture(l.Input)).MachineTypes {
		all[contract.LabelMachineType+convert.KnownMachine(m.Type)] = "true"
	}
	if l.dedicated() {
		all[contract.LabelCPUManager] = "true"
	}
	if !l.mayBeFurther() {
		for _, label := range l.abilities() {
			all[label.usual] = "true"
		}
	}
	l.selectAsSaved(all)
	return all
}

// ability is a label of what a node's guests can have: KubeVirt's, of the node's default hypervisor,
// and ours, of the VM's where that is a further one.
type ability struct{ usual, further string }

// abilities are what the guest needs of the VM's hypervisor and its VMM.
func (l *launcher) abilities() (all []ability) {
	if model := l.spec.GetCpu().GetModel(); model != "" {
		all = append(all, l.ability(contract.LabelCPUModel, contract.LabelFurtherCPUModel, model))
	}
	for _, f := range l.features(kubevirtv1.CPUFeatureRequire, "") {
		all = append(all, l.ability(contract.LabelCPUFeature, contract.LabelFurtherCPUFeature, f))
	}
	if l.Configuration.FeatureGates[configuration.GateHypervStrictCheck] {
		for _, f := range enlightenments(l.spec.GetFeatures().GetHyperv()) {
			all = append(all, l.ability(contract.LabelHyperV, contract.LabelFurtherHyperV, f))
		}
	}
	return all
}

func (l *launcher) ability(usual, further, name string) ability {
	return ability{usual + name, further + l.spec.Hypervisor + "." + name}
}

// mayBeFurther: KubeVirt's labels of some node may be of another hypervisor than the VM's. KVM is the
// default of nodes that have it.
func (l *launcher) mayBeFurther() bool {
	return !slices.Contains([]string{"", spec.Auto, spec.HypervisorKVM}, l.spec.Hypervisor)
}

// underFurther wants a node with the abilities of the VM's hypervisor, and without those that the guest
// must not see, be it the node's default or a further one.
func (l *launcher) underFurther() *corev1.Affinity {
	needs := l.abilities()
	var never []ability
	for _, f := range l.features(kubevirtv1.CPUFeatureForbid) {
		never = append(never, l.ability(contract.LabelCPUFeature, contract.LabelFurtherCPUFeature, f))
	}
	if !l.mayBeFurther() || len(needs)+len(never) == 0 {
		return nil
	}
	usual, further := new(corev1.NodeSelectorTerm), new(corev1.NodeSelectorTerm)
	want := func(t *corev1.NodeSelectorTerm, key string, operator corev1.NodeSelectorOperator, values ...string) {
		t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values})
	}
	want(usual, contract.LabelHypervisor, corev1.NodeSelectorOpIn, l.spec.Hypervisor)
	want(further, contract.LabelHypervisorState+l.spec.Hypervisor, corev1.NodeSelectorOpExists)
	for _, a := range needs {
		want(usual, a.usual, corev1.NodeSelectorOpIn, "true")
		want(further, a.further, corev1.NodeSelectorOpIn, "true")
	}
	for _, a := range never {
		want(usual, a.usual, corev1.NodeSelectorOpDoesNotExist)
		want(further, a.further, corev1.NodeSelectorOpDoesNotExist)
	}
	want(further, contract.LabelHypervisor, corev1.NodeSelectorOpNotIn, l.spec.Hypervisor)
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{*usual, *further}},
	}}
}

// features of the CPU that have one of the policies.
func (l *launcher) features(policies ...kubevirtv1.CPUFeaturePolicy) (names []string) {
	if l.vmi.Spec.Domain.CPU == nil {
		return nil
	}
	for _, f := range l.vmi.Spec.Domain.CPU.Features {
		if slices.Contains(policies, f.Policy) {
			names = append(names, f.Name)
		}
	}
	return names
}

// enlightenments are those that nodes have labels of, by the labels' names.
func enlightenments(h *specv1.HyperV) (names []string) {
	for _, e := range []struct {
		name string
		on   bool
	}{
		{"vpindex", h.GetVpindex()}, {"runtime", h.GetRuntime()}, {"reset", h.GetReset_()}, {"synic", h.GetSynic()},
		{"synictimer", h.GetSynicTimer()}, {"frequencies", h.GetFrequencies()}, {"reenlightenment", h.GetReenlightenment()},
		{"tlbflush", h.GetTlbflush()}, {"ipi", h.GetIpi()},
	} {
		if e.on {
			names = append(names, e.name)
		}
	}
	return names
}

// affinity is the instance's and the cluster's, and keeps off nodes that have what the guest
// must not have.
func (l *launcher) affinity() *corev1.Affinity {
	out := merge(merge(merge(l.vmi.Spec.Affinity, l.Configuration.Placement.Affinity), l.underFurther()), l.reachesImage())
	var never []string
	for _, f := range l.features(kubevirtv1.CPUFeatureForbid) {
		if !l.mayBeFurther() {
			never = append(never, contract.LabelCPUFeature+f)
		}
	}
	if c := l.vmi.Spec.Domain.CPU; c != nil && c.Model == convert.HostModel && l.spec.Hypervisor != spec.HypervisorEmulation {
		never = append(never, contract.LabelObsoleteHostModel)
	}
	if len(never) == 0 {
		return out
	}
	var requirements []corev1.NodeSelectorRequirement
	for _, label := range never {
		requirements = append(requirements, corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	return merge(out, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}},
		},
	}})
}

// merge wants what both want. Neither is changed.
func merge(a, b *corev1.Affinity) *corev1.Affinity {
	if a == nil || b == nil {
		return cmp.Or(a, b).DeepCopy()
	}
	out, more := a.DeepCopy(), b.DeepCopy()
	out.NodeAffinity = mergeNodes(out.NodeAffinity, more.NodeAffinity)
	if m := more.PodAffinity; m != nil {
		if out.PodAffinity == nil {
			out.PodAffinity = new(corev1.PodAffinity)
		}
		p := out.PodAffinity
		p.RequiredDuringSchedulingIgnoredDuringExecution = append(p.RequiredDuringSchedulingIgnoredDuringExecution, m.RequiredDuringSchedulingIgnoredDuringExecution...)
		p.PreferredDuringSchedulingIgnoredDuringExecution = append(p.PreferredDuringSchedulingIgnoredDuringExecution, m.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if m := more.PodAntiAffinity; m != nil {
		if out.PodAntiAffinity == nil {
			out.PodAntiAffinity = new(corev1.PodAntiAffinity)
		}
		p := out.PodAntiAffinity
		p.RequiredDuringSchedulingIgnoredDuringExecution = append(p.RequiredDuringSchedulingIgnoredDuringExecution, m.RequiredDuringSchedulingIgnoredDuringExecution...)
		p.PreferredDuringSchedulingIgnoredDuringExecution = append(p.PreferredDuringSchedulingIgnoredDuringExecution, m.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	return out
}

// mergeNodes: of the terms of a node selector one has to fit, so that each of the one goes
// with each of the other.
func mergeNodes(a, b *corev1.NodeAffinity) *corev1.NodeAffinity {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, b.PreferredDuringSchedulingIgnoredDuringExecution...)
	one, other := a.RequiredDuringSchedulingIgnoredDuringExecution, b.RequiredDuringSchedulingIgnoredDuringExecution
	if one == nil || other == nil {
		if one == nil {
			a.RequiredDuringSchedulingIgnoredDuringExecution = other
		}
		return a
	}
	both := new(corev1.NodeSelector)
	for _, x := range one.NodeSelectorTerms {
		for _, y := range other.NodeSelectorTerms {
			both.NodeSelectorTerms = append(both.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: slices.Concat(x.MatchExpressions, y.MatchExpressions),
				MatchFields:      slices.Concat(x.MatchFields, y.MatchFields),
			})
		}
	}
	a.RequiredDuringSchedulingIgnoredDuringExecution = both
	return a
}

// tolerations are the instance's and the cluster's.
func (l *launcher) tolerations() (all []corev1.Toleration) {
	for _, list := range [][]corev1.Toleration{l.vmi.Spec.Tolerations, l.Configuration.Placement.Tolerations} {
		for i := range list {
			all = append(all, *list[i].DeepCopy())
		}
	}
	return all
}
