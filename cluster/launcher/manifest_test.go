package launcher_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/defaults"
)

// read is what a manifest gives: the instance with its defaults, and its claims.
func read(t testing.TB, manifest string) convert.Input {
	t.Helper()
	content, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	in := convert.Input{
		Configuration: configuration.Default(),
		Claims:        make(map[string]*corev1.PersistentVolumeClaim),
		Launcher:      "registry.example/vmlet:v1",
	}
	documents := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := add(&in, document); err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
	}
	if in.Instance == nil {
		t.Fatalf("%s has no VM", manifest)
	}
	in.Instance.Namespace, in.Instance.UID = "default", "11111111-2222-4333-8444-555555555555"
	defaults.Instance(in.Instance, in.Configuration)
	return in
}

// add reads one object of a manifest, strictly.
func add(in *convert.Input, document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "VirtualMachineInstance":
		in.Instance = new(kubevirtv1.VirtualMachineInstance)
		return yaml.UnmarshalStrict(document, in.Instance)
	case "VirtualMachine":
		var vm kubevirtv1.VirtualMachine
		err := yaml.UnmarshalStrict(document, &vm)
		in.Instance = &kubevirtv1.VirtualMachineInstance{Spec: vm.Spec.Template.Spec}
		in.Instance.Name = vm.Name
		in.Instance.Labels, in.Instance.Annotations = vm.Spec.Template.ObjectMeta.Labels, vm.Spec.Template.ObjectMeta.Annotations
		return err
	case "PersistentVolumeClaim":
		claim := new(corev1.PersistentVolumeClaim)
		err := yaml.UnmarshalStrict(document, claim)
		in.Claims[claim.Name] = claim
		return err
	}
	return fmt.Errorf("kind %q", kind.Kind)
}
