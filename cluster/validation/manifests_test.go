package validation

import (
	"os"
	"path/filepath"
	"slices"
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
			faults, warnings := judged(t, file, document, request())
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

// judged is what admission says of a manifest of either kind; others have no faults.
func judged(t *testing.T, file, document string, r Request) (faults field.ErrorList, warnings []string) {
	t.Helper()
	var head struct{ Kind string }
	parse := func(into any) {
		if err := yaml.Unmarshal([]byte(document), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	parse(&head)
	switch head.Kind {
	case "VirtualMachine":
		vm := new(kubevirtv1.VirtualMachine)
		parse(vm)
		vm.Namespace = "default"
		return Machine(vm, nil, r)
	case "VirtualMachineInstance":
		vmi := new(kubevirtv1.VirtualMachineInstance)
		parse(vmi)
		vmi.Namespace = "default"
		return Instance(vmi, nil, r)
	}
	return nil, nil
}

// TestRefusedManifests: of manifests that need what vmlet has not, each field is named that is
// at fault, and no other. Its comments say which.
func TestRefusedManifests(t *testing.T) {
	files, err := filepath.Glob("../testdata/refused/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("manifests are %v, %v: want more", files, err)
	}
	r := request()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for line := range strings.Lines(string(text)) {
			if path, is := strings.CutPrefix(line, "# "); is {
				want = append(want, strings.TrimSpace(path))
			}
		}
		faults, _ := judged(t, file, string(text), r)
		for _, f := range faults {
			got = append(got, f.Field)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: faults are of %q, want %q: %v", file, got, want, faults)
		}
	}
}
