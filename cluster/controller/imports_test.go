package controller

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

// TestImporterGoesByTheTemplatesAnnotations: hypervisor and VMM of a VM are its template's, the
// cluster's, or what nodes offer, and its importer wants a node by their labels.
func TestImporterGoesByTheTemplatesAnnotations(t *testing.T) {
	const kvm, mshv, emulation = "cpu-model.node.kubevirt.io/Haswell", "cpu-model.node.vmlet.io/mshv.Haswell", "cpu-model.node.vmlet.io/emulation.Haswell"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		contract.LabelSchedulable: "true", corev1.LabelArchStable: "amd64", contract.LabelHypervisorState + "emulation": "works",
	}}}
	for name, c := range map[string]struct {
		annotations map[string]string
		cluster     string
		want        string
	}{
		"none":        {nil, "", kvm},
		"its own":     {map[string]string{contract.AnnotationHypervisor: "mshv"}, "", mshv},
		"the cluster": {nil, "mshv", mshv},
		"offered":     {map[string]string{contract.AnnotationHypervisor: "auto"}, "", emulation},
		"its VMM":     {map[string]string{contract.AnnotationVMM: "cloud-hypervisor"}, "", kvm},
	} {
		config := configuration.Default()
		config.Hypervisor = c.cluster
		vm := &kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{Template: new(kubevirtv1.VirtualMachineInstanceTemplateSpec)}}
		vm.Spec.Template.ObjectMeta.Annotations = c.annotations
		s := &vm.Spec.Template.Spec
		s.Architecture = "amd64"
		s.Domain.CPU = &kubevirtv1.CPU{Model: "Haswell"}
		s.Domain.Memory = &kubevirtv1.Memory{Guest: new(resource.MustParse("1Gi"))}
		f := launcher.Filling{VM: vm, Claim: new(corev1.PersistentVolumeClaim), Spec: &kubevirtv1.DataVolumeSpec{Source: &kubevirtv1.DataVolumeContent{}}}
		f.Input = convert.Input{Instance: instanceOf(vm), Configuration: config, Launcher: "vmlet"}
		pod, err := importer(t.Context(), fake.NewClientBuilder().WithObjects(node).Build(), f)
		if err != nil {
			t.Fatal(err)
		}
		wants := fmt.Sprint(pod.Spec.NodeSelector, pod.Spec.Affinity.String())
		if !strings.Contains(wants, c.want) {
			t.Errorf("%s: the importer wants %s, want %s in it", name, wants, c.want)
		}
		byMachine, chosen := strings.Contains(wants, contract.LabelMachineType), c.annotations[contract.AnnotationVMM] != ""
		if byMachine == chosen {
			t.Errorf("%s: the importer wants %s: a machine type in it: %v, want %v", name, wants, byMachine, !chosen)
		}
	}
}
