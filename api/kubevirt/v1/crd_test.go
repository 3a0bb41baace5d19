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

	"sigs.k8s.io/yaml"
)

// crds is the folder that `make generate` writes definitions to.
const crds = "../../../deploy/crd"

// definition is the part of a CustomResourceDefinition that tests look at.
type definition struct {
	Spec struct {
		Names struct {
			Kind                   string
			ShortNames, Categories []string
		}
		Versions []struct {
			Name                     string
			Served, Storage          bool
			Deprecated               bool
			AdditionalPrinterColumns []struct{ Name, JSONPath string }
			Schema                   struct{ OpenAPIV3Schema *schemaNode }
			Subresources             map[string]any
		}
	}
}

// schemaNode is the part of a structural schema that tests look at.
type schemaNode struct {
	Description          string
	Properties           map[string]*schemaNode
	Items                *schemaNode
	AdditionalProperties *schemaNode
}

// definitions are the package's, by kind.
func definitions(t *testing.T) map[string]definition {
	t.Helper()
	all := make(map[string]definition)
	for _, file := range files(t, filepath.Join(crds, Group+"_*.yaml")) {
		var d definition
		if err := yaml.Unmarshal(read(t, file), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[d.Spec.Names.Kind] = d
	}
	return all
}

func (d definition) schema() *schemaNode { return d.Spec.Versions[0].Schema.OpenAPIV3Schema }

// walk calls f for each field below the schema with its path: spec.volumes[].name, or with *
// for the keys of a map.
func (s *schemaNode) walk(path string, f func(path string, field *schemaNode)) {
	for name, field := range s.Properties {
		below := strings.TrimPrefix(path+"."+name, ".")
		f(below, field)
		field.walk(below, f)
	}
	if s.Items != nil {
		s.Items.walk(path+"[]", f)
	}
	if s.AdditionalProperties != nil {
		s.AdditionalProperties.walk(path+".*", f)
	}
}

func TestNames(t *testing.T) {
	all := definitions(t)
	for kind, want := range map[string]string{
		"VirtualMachine":         "v1 [vm vms] [all] [Age Status Ready] [status]",
		"VirtualMachineInstance": "v1 [vmi vmis] [all] [Age Phase IP NodeName Ready Live-Migratable Paused] [status]",
		KindReplicaSet:           "v1 [vmirs vmirss] [all] [Desired Current Ready Age] [scale status]",
		"KubeVirt":               "v1 [kv kvs] [all] [Age Phase] [status]",
	} {
		names, version := all[kind].Spec.Names, all[kind].Spec.Versions[0]
		var columns, subresources []string
		for _, c := range version.AdditionalPrinterColumns {
			columns = append(columns, c.Name)
		}
		for name := range version.Subresources {
			subresources = append(subresources, name)
		}
		slices.Sort(subresources)
		got := fmt.Sprint(version.Name, " ", names.ShortNames, " ", names.Categories, " ", columns, " ", subresources)
		if got != want {
			t.Errorf("%s: version, short names, categories, columns and subresources are\n%s\nwant\n%s", kind, got, want)
		}
	}
	if len(all) != 4 {
		t.Errorf("%s has %d definitions, want 4", crds, len(all))
	}
}

// TestVersions: objects are kept as v1, and manifests of v1alpha3 are taken as if they were v1.
func TestVersions(t *testing.T) {
	for kind, d := range definitions(t) {
		var got []string
		for _, v := range d.Spec.Versions {
			got = append(got, fmt.Sprint(v.Name, " served ", v.Served, " storage ", v.Storage, " deprecated ", v.Deprecated))
			v.Name, v.Storage, v.Deprecated = d.Spec.Versions[0].Name, d.Spec.Versions[0].Storage, false
			if !reflect.DeepEqual(v, d.Spec.Versions[0]) {
				t.Errorf("%s: %s is not as v1", kind, v.Name)
			}
		}
		want := []string{"v1 served true storage true deprecated false", "v1alpha3 served true storage false deprecated true"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: versions are %q, want %q", kind, got, want)
		}
	}
}

// TestDescriptions: `kubectl explain` has something to say about every field, and breaks the
// lines of paragraphs itself.
func TestDescriptions(t *testing.T) {
	broken := regexp.MustCompile(`\S\n[A-Za-z]`)
	for kind, d := range definitions(t) {
		d.schema().walk("", func(path string, field *schemaNode) {
			if field.Description == "" && path != "metadata" {
				t.Errorf("%s: %s has no description", kind, path)
			}
			if broken.MatchString(field.Description) {
				t.Errorf("%s: %s has a line break in a paragraph: %q", kind, path, field.Description)
			}
		})
	}
}

// TestSize: etcd takes 1.5 MiB at once, and an update carries managed fields beside.
func TestSize(t *testing.T) {
	for _, file := range files(t, filepath.Join(crds, "*_*.yaml")) {
		asJSON, err := yaml.YAMLToJSON(read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if size := len(asJSON); size > 1<<20 {
			t.Errorf("%s is %d bytes of JSON, want at most 1 MiB", file, size)
		}
	}
}

// TestPublishedFields: the schema has the fields that users' manifests have, and the
// manifests that an API server is tested with use each of them.
func TestPublishedFields(t *testing.T) {
	known := map[string]bool{}
	definitions(t)["VirtualMachineInstance"].schema().Properties["spec"].walk("", func(path string, _ *schemaNode) {
		known[path] = true
	})
	used := map[string]bool{}
	for _, m := range manifests(t) {
		var object any
		unmarshal(t, m.json, &object)
		for _, path := range paths(object) {
			for _, above := range []string{"spec.template.spec.", "spec."} {
				if below, is := strings.CutPrefix(path, above); is {
					used[below] = true
					break
				}
			}
		}
	}
	for line := range strings.Lines(string(read(t, "testdata/published-fields.txt"))) {
		field := strings.TrimSpace(line)
		if strings.HasPrefix(field, "#") {
			continue
		}
		if !known[field] {
			t.Errorf("the schema lacks %s", field)
		}
		if !used[field] {
			t.Errorf("no manifest uses %s", field)
		}
	}
}

// paths are those of all fields in a decoded object, with [] for any place in a list.
func paths(value any) (all []string) {
	add := func(prefix, separator string, below any) {
		for _, path := range paths(below) {
			if !strings.HasPrefix(path, "[") {
				path = separator + path
			}
			all = append(all, prefix+path)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			all = append(all, name)
			add(name, ".", below)
		}
	case []any:
		for _, below := range value {
			add("[]", ".", below)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestPaths(t *testing.T) {
	var object any
	unmarshal(t, []byte(`{"a": {"b": [{"c": 1}, {"d": [[{"e": 2}]]}]}}`), &object)
	want := []string{"a", "a.b", "a.b[].c", "a.b[].d", "a.b[].d[][].e"}
	if got := paths(object); !reflect.DeepEqual(got, want) {
		t.Errorf("paths are %q, want %q", got, want)
	}
}

// files are those that a pattern matches. There is one at least.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return found
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unmarshal(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
