package save

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/contract"
)

// TestSavedWords: what a shim says that a VM was saved to is taken as it is to be, or not at all.
func TestSavedWords(t *testing.T) {
	const folder = contract.HibernationFolder + "/x"
	for _, c := range []struct {
		message string
		want    Image
	}{
		{scene.SavedTo(scene.Image, folder), Image{scene.Image, folder}},
		{scene.SavedTo(scene.Image, folder) + "\n", Image{scene.Image, folder}},
		{scene.SavedTo(scene.Image, ""), Image{}},
		{scene.SavedTo("", folder), Image{}},
		{scene.SavedTo(scene.Image, " "+folder), Image{}},
		{scene.SavedTo(scene.Image, folder+" and more"), Image{}},
		{scene.SavedTo(scene.Image, folder+"\nmore"), Image{}},
		{scene.SavedTo("../../etc", folder), Image{}},
		{scene.SavedTo(strings.ToUpper(scene.Image), folder), Image{}},
		{scene.SavedTo(scene.Image, "/"+strings.Repeat("a", maxFolder)), Image{}},
		{strings.Replace(scene.SavedTo(scene.Image, folder), contract.GuestSaved, contract.GuestShutdown, 1), Image{}},
		{"saved image " + scene.Image + " " + folder, Image{scene.Image, folder}},
		{"saved image " + scene.Image + "  " + folder, Image{}},
		{"once saved image " + scene.Image + " " + folder, Image{}},
		{"", Image{}},
	} {
		got, is := writtenBy(contract.ReadEnding(c.message))
		if !is {
			got = Image{}
		}
		if got != c.want {
			t.Errorf("%.80q: %+v, want %+v", c.message, got, c.want)
		}
	}
}

// TestNodeSelector: a guest that has seen its node's CPU goes on where that is the same.
func TestNodeSelector(t *testing.T) {
	labels := map[string]string{
		corev1.LabelArchStable: "amd64", contract.LabelHypervisorState + "kvm": "works", contract.LabelHypervisorState + "mshv": "absent",
		contract.LabelHostModelCPU + "Skylake": "true", contract.LabelCPUModel + "Haswell": "true", "zone": "a",
	}
	const kvm, host = contract.LabelHypervisorState + "kvm", contract.LabelHostModelCPU + "Skylake"
	model := func(name string) *kubevirtv1.CPU { return &kubevirtv1.CPU{Model: name} }
	for _, c := range []struct {
		name       string
		hypervisor string
		cpu        *kubevirtv1.CPU
		want       []string
	}{
		{"no CPU said", "kvm", nil, []string{corev1.LabelArchStable, kvm, host}},
		{"no model", "kvm", model(""), []string{corev1.LabelArchStable, kvm, host}},
		{"the host's model", "kvm", model(convert.HostModel), []string{corev1.LabelArchStable, kvm, host}},
		{"the host's CPU", "kvm", model(convert.HostPassthrough), []string{corev1.LabelArchStable, kvm, host}},
		{"a model", "kvm", model("Haswell"), []string{corev1.LabelArchStable, kvm}},
		{"emulated", "emulation", nil, []string{corev1.LabelArchStable}},
		{"a hypervisor that does not work by the labels", "mshv", model("Haswell"), []string{corev1.LabelArchStable}},
	} {
		got := nodeSelector(labels, c.hypervisor, c.cpu)
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%s: %v, want %v", c.name, keys, c.want)
		}
	}
	if got := nodeSelector(nil, "kvm", nil); got != nil {
		t.Errorf("of a node that is gone: %v", got)
	}
}
