package launcher_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// TestUnderFurtherHypervisor: the labels of a node are of its default hypervisor. A VM under another
// finds what it needs in those, or in the labels of the node's further hypervisors.
func TestUnderFurtherHypervisor(t *testing.T) {
	in := read(t, simple)
	in.Instance.Spec.Domain.CPU = &kubevirtv1.CPU{Model: "Haswell", Sockets: 1, Cores: 1, Threads: 1, Features: []kubevirtv1.CPUFeature{{Name: "aes"}, {Name: "avx", Policy: kubevirtv1.CPUFeatureForbid}}}
	for hypervisor, want := range map[string][]string{
		"kvm": {"cpu-feature.node.kubevirt.io/avx DoesNotExist "},
		"mshv": {
			"node.vmlet.io/hypervisor In mshv, cpu-model.node.kubevirt.io/Haswell In true, cpu-feature.node.kubevirt.io/aes In true, cpu-feature.node.kubevirt.io/avx DoesNotExist ",
			"hypervisor.node.vmlet.io/mshv Exists , cpu-model.node.vmlet.io/mshv.Haswell In true, cpu-feature.node.vmlet.io/mshv.aes In true, cpu-feature.node.vmlet.io/mshv.avx DoesNotExist , node.vmlet.io/hypervisor NotIn mshv",
		},
	} {
		in.Instance.Annotations = map[string]string{contract.AnnotationHypervisor: hypervisor}
		p := pod(t, in)
		var terms []string
		for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			var keys []string
			for _, r := range term.MatchExpressions {
				keys = append(keys, fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, " ")))
			}
			terms = append(terms, strings.Join(keys, ", "))
		}
		if !slices.Equal(terms, want) {
			t.Errorf("%s: %q, want %q", hypervisor, terms, want)
		}
		if _, selects := p.Spec.NodeSelector[contract.LabelCPUModel+"Haswell"]; selects != (hypervisor == "kvm") {
			t.Errorf("%s: it selects nodes by %v", hypervisor, p.Spec.NodeSelector)
		}
	}
}

// TestOptionalDevices: what VMs can do without is requested where a node has it, but not what their
// pods don't open.
func TestOptionalDevices(t *testing.T) {
	in := read(t, simple)
	in.Offers.Devices = map[corev1.ResourceName]bool{contract.ResourceTUN: true, contract.ResourceVhostNet: true}
	if got := len(pod(t, in).Spec.Containers[0].Resources.Limits); got != 1 {
		t.Errorf("%d resources, want KVM's alone", got)
	}
	in.Instance.Annotations = map[string]string{contract.AnnotationVhostNet: "true"}
	if _, has := pod(t, in).Spec.Containers[0].Resources.Limits[contract.ResourceVhostNet]; !has {
		t.Error("vhost-net was asked for, and is not requested")
	}
}
