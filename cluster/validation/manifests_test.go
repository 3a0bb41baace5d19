package validation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestManifests: what users write of supported fields alone is accepted, and nothing of it
// is ignored.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../testdata/manifests/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("manifests are %v, %v: want more", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var head struct{ Kind string }
			parse := func(into any) {
				if err := yaml.Unmarshal([]byte(document), into); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
			}
			parse(&head)
			var faults field.ErrorList
			var warnings []string
			switch head.Kind {
			case "VirtualMachine":
				vm := new(kubevirtv1.VirtualMachine)
				parse(vm)
				faults, warnings = Machine(vm, nil, request())
			case "VirtualMachineInstance":
				vmi := new(kubevirtv1.VirtualMachineInstance)
				parse(vmi)
				faults, warnings = Instance(vmi, nil, request())
			}
			if len(faults) > 0 {
				t.Errorf("%s: faults are %v, want none", file, faults)
			}
			for _, w := range warnings {
				if strings.Contains(w, "is ignored") {
					t.Errorf("%s: unexpected warning %q", file, w)
				}
			}
		}
	}
}
