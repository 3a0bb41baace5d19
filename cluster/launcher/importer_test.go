package launcher_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/launcher"
)

// newFilling is that of a claim for the VM of a manifest.
func newFilling(t *testing.T, source string) launcher.Filling {
	t.Helper()
	f := launcher.Filling{
		VM: new(kubevirtv1.VirtualMachine), Claim: newClaim("root", corev1.PersistentVolumeFilesystem), Spec: new(kubevirtv1.DataVolumeSpec),
		Source: "0123456789abcdef", Input: read(t, "../testdata/manifests/vm-container-disk.yaml"),
	}
	f.VM.Namespace, f.VM.Name, f.VM.UID = "guests", "web", "vm-uid"
	if err := yaml.UnmarshalStrict([]byte("{source: "+source+"}"), f.Spec); err != nil {
		t.Fatal(err)
	}
	f.Input.Launcher = "vmlet.invalid/vmlet:local"
	return f
}

func newClaim(name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	claim := new(corev1.PersistentVolumeClaim)
	claim.Namespace, claim.Name, claim.UID = "guests", name, "claim-uid"
	claim.Spec.VolumeMode = &mode
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	return claim
}

// TestImporterGolden compares importers' pods with testdata/golden.
func TestImporterGolden(t *testing.T) {
	for name, source := range map[string]string{
		"blank":    "{blank: {}}",
		"http":     "{http: {url: 'https://example.com/disk.qcow2', checksum: 'md5:d41d8cd98f00b204e9800998ecf8427e', secretRef: login, secretExtraHeaders: [token, login], extraHeaders: ['A: b'], certConfigMap: authorities}}",
		"registry": "{registry: {url: 'docker://quay.io/containerdisks/debian:13', platform: {architecture: arm64}}}",
	} {
		t.Run(name, func(t *testing.T) { compare(t, "importer-"+name, launcher.Importer(newFilling(t, source))) })
	}
	t.Run("block from block", func(t *testing.T) {
		f := newFilling(t, "{pvc: {namespace: guests, name: golden}}")
		f.Claim, f.From = newClaim("root", corev1.PersistentVolumeBlock), newClaim("golden", corev1.PersistentVolumeBlock)
		f.Spec.Preallocation, f.Spec.PriorityClassName, f.Restarts = new(true), "low", 3
		f.Input.Configuration = configured()
		compare(t, "importer-block", launcher.Importer(f))
	})
	t.Run("copy", func(t *testing.T) {
		f := newFilling(t, "{pvc: {namespace: guests, name: golden}}")
		f.From = newClaim("golden", corev1.PersistentVolumeFilesystem)
		compare(t, "importer-copy", launcher.Importer(f))
	})
}

// TestImporterGoesWhereItsVMDoes: nodes and tolerations are those of the VM's pod; of a VM that can't
// have one yet, those that it names.
func TestImporterGoesWhereItsVMDoes(t *testing.T) {
	f := newFilling(t, "{blank: {}}")
	s := &f.Input.Instance.Spec
	s.NodeSelector = map[string]string{"zone": "a"}
	s.Tolerations = []corev1.Toleration{{Key: "vms", Operator: corev1.TolerationOpExists}}
	vm, err := launcher.Pod(f.Input)
	if err != nil {
		t.Fatal(err)
	}
	pod := launcher.Importer(f)
	for key, want := range vm.Spec.NodeSelector {
		if got := pod.Spec.NodeSelector[key]; got != want {
			t.Errorf("the importer wants nodes with %s %q, its VM %q", key, got, want)
		}
	}
	s.Domain.Memory = nil
	pod = launcher.Importer(f)
	if got := pod.Spec.NodeSelector["zone"]; got != "a" {
		t.Errorf("without memory the VM has its importer in zone %q, want a", got)
	}
	if len(pod.Spec.Tolerations) != 1 {
		t.Errorf("without memory the VM has its importer tolerate %v", pod.Spec.Tolerations)
	}
}
