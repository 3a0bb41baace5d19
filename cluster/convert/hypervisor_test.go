package convert_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
)

// TestHypervisor: the image's comes first, then the instance's word, the cluster's, and KVM.
func TestHypervisor(t *testing.T) {
	none, both := []string(nil), []string{"emulation", "kvm"}
	for _, c := range []struct {
		saved, annotation, cluster string
		emulation                  bool
		offered                    []string
		want                       string
	}{
		{"", "", "", false, none, "kvm"},
		{"", "", "", true, both, "emulation"},
		{"", "auto", "", true, none, "auto"},
		{"", "auto", "", true, both, "kvm"},
		{"", "auto", "kvm", false, []string{"emulation"}, "emulation"},
		{"", "kvm", "", true, none, "kvm"},
		{"", "mshv", "kvm", false, none, "mshv"},
		{"", "hyperv-direct", "", false, none, "mshv"},
		{"", "", "mshv", true, none, "mshv"},
		{"", "", "auto", false, both, "kvm"},
		{"emulation", "kvm", "mshv", false, both, "emulation"},
	} {
		in := input(t, "domain: {}")
		in.Configuration.UseEmulation, in.Configuration.Hypervisor = c.emulation, c.cluster
		in.Offers.Hypervisors = make(map[string]bool)
		for _, name := range c.offered {
			in.Offers.Hypervisors[name] = true
		}
		if c.annotation != "" {
			in.Instance.Annotations = map[string]string{contract.AnnotationHypervisor: c.annotation}
		}
		if c.saved != "" {
			in.Instance.Spec.StartStrategy, in.Instance.Spec.RestoreFrom = new(kubevirtv1.StartRestore), &kubevirtv1.SavedImage{Hypervisor: c.saved}
		}
		if s, _ := converted(t, in); s.Hypervisor != c.want {
			t.Errorf("%+v: hypervisor %q", c, s.Hypervisor)
		}
	}
}

// TestOffersOf: a node counts if VMs of the architecture can be started there.
func TestOffersOf(t *testing.T) {
	sound := map[string]string{
		contract.LabelSchedulable: "true", corev1.LabelArchStable: "amd64",
		contract.LabelHypervisorState + "kvm": "works", contract.LabelHypervisorState + "emulation": "works",
	}
	for name, c := range map[string]struct {
		label, value        string
		unschedulable       bool
		kvm                 string // how many
		wantKVM, wantOthers bool
	}{
		"all":                  {"", "", false, "110", true, true},
		"no device":            {"", "", false, "0", false, true},
		"KVM is slow":          {contract.LabelHypervisorState + "kvm", "degraded", false, "110", false, true},
		"without an agent":     {contract.LabelSchedulable, "false", false, "110", false, false},
		"another architecture": {corev1.LabelArchStable, "arm64", false, "110", false, false},
		"cordoned":             {"", "", true, "110", false, false},
	} {
		n := corev1.Node{}
		n.Labels, n.Spec.Unschedulable = maps.Clone(sound), c.unschedulable
		if c.label != "" {
			n.Labels[c.label] = c.value
		}
		n.Status.Allocatable = corev1.ResourceList{contract.ResourceKVM: resource.MustParse(c.kvm), "cpu": resource.MustParse("2")}
		got := convert.OffersOf([]corev1.Node{n}, "amd64")
		if got.Hypervisors["kvm"] != c.wantKVM || got.Hypervisors["emulation"] != c.wantOthers || got.Hypervisors["mshv"] ||
			got.Devices[contract.ResourceKVM] != (c.wantOthers && c.kvm != "0") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
