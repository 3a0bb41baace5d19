package v1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// definition is the part of a CustomResourceDefinition that tests look at.
type definition struct {
	Spec struct {
		Scope string
		Names struct {
			Kind                   string
			ShortNames, Categories []string
		}
		Versions []struct {
			Name            string
			Served, Storage bool
			Schema          struct{ OpenAPIV3Schema *node }
		}
	}
}

type node struct {
	Description string
	Properties  map[string]*node
	Items       *node
}

// walk calls f for each field below, with its path.
func (n *node) walk(path string, f func(path string, n *node)) {
	for name, below := range n.Properties {
		f(path+"."+name, below)
		below.walk(path+"."+name, f)
	}
	if n.Items != nil {
		n.Items.walk(path+"[]", f)
	}
}

func definitions(t *testing.T) map[string]definition {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/crd/" + Group + "_*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatalf("definitions are %q, %v: want 4", files, err)
	}
	all := make(map[string]definition)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[d.Spec.Names.Kind] = d
	}
	return all
}

// TestNames: kubectl finds the kinds by KubeVirt's names.
func TestNames(t *testing.T) {
	all := definitions(t)
	for kind, want := range map[string]string{
		KindInstancetype:        "Namespaced [vminstancetype vminstancetypes vmf vmfs] [all]",
		KindClusterInstancetype: "Cluster [vmclusterinstancetype vmclusterinstancetypes vmcf vmcfs] []",
		KindPreference:          "Namespaced [vmpref vmprefs vmp vmps] [all]",
		KindClusterPreference:   "Cluster [vmcp vmcps] []",
	} {
		s := all[kind].Spec
		if got := fmt.Sprint(s.Scope, " ", s.Names.ShortNames, " ", s.Names.Categories); got != want {
			t.Errorf("%s: scope, short names and categories are %s, want %s", kind, got, want)
		}
	}
}

// TestVersions: v1 is stored, and v1beta1 served with its schema.
func TestVersions(t *testing.T) {
	for kind, d := range definitions(t) {
		var got []string
		for _, v := range d.Spec.Versions {
			got = append(got, fmt.Sprint(v.Name, " ", v.Served, " ", v.Storage))
			if !reflect.DeepEqual(v.Schema, d.Spec.Versions[0].Schema) {
				t.Errorf("%s: the schema of %s is not that of v1", kind, v.Name)
			}
		}
		if want := []string{"v1 true true", "v1beta1 true false"}; !slices.Equal(got, want) {
			t.Errorf("%s: versions, whether served and stored, are %q, want %q", kind, got, want)
		}
	}
}

// TestDescriptions: kubectl explain has something to say about every field, in whole paragraphs.
func TestDescriptions(t *testing.T) {
	broken := regexp.MustCompile(`\S\n[A-Za-z]`)
	for kind, d := range definitions(t) {
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.walk("", func(path string, n *node) {
			if n.Description == "" && path != ".metadata" {
				t.Errorf("%s: %s has no description", kind, path)
			}
			if broken.MatchString(n.Description) {
				t.Errorf("%s: %s has a line break in a paragraph: %q", kind, path, n.Description)
			}
		})
	}
}

// TestFields: the types have all of KubeVirt's fields, under their names and no others.
func TestFields(t *testing.T) {
	text, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	slices.Sort(want)
	var got []string
	own := reflect.TypeFor[VirtualMachinePreference]().PkgPath()
	var add func(path string, of reflect.Type)
	add = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.PkgPath() != own {
			got = append(got, path)
			return
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			add(path+"."+name, of.Field(i).Type)
		}
	}
	add("instancetype", reflect.TypeFor[VirtualMachineInstancetypeSpec]())
	add("preference", reflect.TypeFor[VirtualMachinePreferenceSpec]())
	slices.Sort(got)
	if !slices.Equal(got, want) {
		for _, path := range slices.Concat(got, want) {
			if slices.Contains(got, path) != slices.Contains(want, path) {
				t.Errorf("%s: the types have it: %v, KubeVirt has it: %v", path, slices.Contains(got, path), slices.Contains(want, path))
			}
		}
	}
}

// TestKinds: a scheme knows each kind and its list, which copy themselves.
func TestKinds(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for kind := range definitions(t) {
		for _, name := range []string{kind, kind + "List"} {
			o, err := s.New(schema.GroupVersionKind{Group: Group, Version: Version, Kind: name})
			if err != nil {
				t.Fatal(err)
			}
			text := `{"spec":{"annotations":{"a":"b"}}}`
			if name != kind {
				text = `{"items":[` + text + `]}`
			}
			if err := json.Unmarshal([]byte(text), o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if copied := o.DeepCopyObject(); !reflect.DeepEqual(o, copied) {
				t.Errorf("%s: its deep copy is %v, want %v", name, copied, o)
			}
		}
	}
}
