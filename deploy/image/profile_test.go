package main

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// TestProfiles: those in deploy/stacks are what the build makes for vmlet's own image with a cloud-hypervisor and the
// sample's driver, and each has an effect, without a fault.
func TestProfiles(t *testing.T) {
	folder := t.TempDir()
	if err := writeProfiles(options{profiles: folder, reference: "vmlet.invalid/vmlet:local", cloudHypervisor: "ch", drivers: []string{"bin/microvm"}}); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(folder + "/*")
	if err != nil || len(made) != 2 {
		t.Fatalf("made %v, %v", made, err)
	}
	for _, file := range made {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("../stacks", filepath.Base(file)))
		if err != nil || string(got) != string(want) {
			t.Errorf("deploy/stacks/%s is not what the build makes: %v", filepath.Base(file), err)
		}
		var kv kubevirtv1.KubeVirt
		if err := yaml.UnmarshalStrict(got, &kv); err != nil {
			t.Fatal(err)
		}
		c, faults := configuration.From(&kv)
		if len(faults) > 0 || c.Stack.Launcher == "" || c.Stack.VMM == "" || c.Stack.VMM != c.Stack.Name {
			t.Errorf("%s: faults %v, stack %+v", filepath.Base(file), faults, c.Stack)
		}
	}
}
