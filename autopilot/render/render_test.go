package render

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
)

const cluster = `
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kv, namespace: kvns, annotations: {platform.kubevirt.io/a: "x", platform.kubevirt.io/evil: "a\nmore: b", platform.kubevirt.io/large: LARGE, platform.kubevirt.io/labels: " a = b, c.d/e=,,", platform.kubevirt.io/twice: "a=b,a=c", platform.kubevirt.io/long: "a=b=c"}}
spec: {count: 3}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: b}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: a}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, names: {kind: Widget, plural: widgets}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {properties: {spec: {properties: {mode: {enum: [A, B]}, modes: {items: {enum: [C]}}}}}}}}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kubevirts.kubevirt.io}
spec: {group: kubevirt.io, names: {kind: KubeVirt, plural: kubevirts}, versions: [{name: v1, served: true, storage: true}]}
---
apiVersion: v1
kind: Node
metadata: {name: new}
status: {nodeInfo: {kubeletVersion: v1.36.3+vendor}}
---
apiVersion: v1
kind: Node
metadata: {name: old}
status: {nodeInfo: {kubeletVersion: v1.34.9}}
---
apiVersion: v1
kind: Node
metadata: {name: odd}
status: {nodeInfo: {kubeletVersion: unknown}}
`

// failing is an API server that does not answer.
type failing struct{}

func (failing) Get(context.Context, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, errors.New("no answer")
}

func (failing) List(context.Context, schema.GroupVersionResource, string) ([]*unstructured.Unstructured, error) {
	return nil, errors.New("no answer")
}

// TestFunctions: each function, and how it fails.
func TestFunctions(t *testing.T) {
	objects, err := facts.Parse([]byte(strings.Replace(cluster, "LARGE", strings.Repeat("x", 5000), 1)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := objects.Facts(t.Context(), "vmlet")
	if err != nil {
		t.Fatal(err)
	}
	reads := []catalog.Read{{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}, {Version: "v1", Kind: "Secret", Namespace: "mine"}}
	for _, c := range []struct{ text, want, fault string }{
		{`{{ annotation "a" }}`, "x", ""},
		{`{{ annotation "none" | default "other" }}`, "other", ""},
		{`{{ annotation "evil" | toJson }}`, "a\nmore: b", ""},
		{`{{ annotation "evil" | quote }}`, "a\nmore: b", ""},
		{`{{ annotation "large" }}`, "", "more than 4096 bytes"},
		{`{{ hasAnnotation "a" "x" }}{{ hasAnnotation "a" "y" }}`, "truefalse", ""},
		{`{{ labels "labels" | toJson }}`, `{"a":"b","c.d/e":""}`, ""},
		{`{{ with labels "none" }}{{ . }}{{ end }}none`, "none", ""},
		{`{{ labels "a" }}`, "", "annotation platform.kubevirt.io/a: want KEY=VALUE"},
		{`{{ labels "evil" }}`, "", "annotation platform.kubevirt.io/evil: want KEY=VALUE"},
		{`{{ labels "long" }}`, "", "annotation platform.kubevirt.io/long: want KEY=VALUE"},
		{`{{ labels "twice" }}`, "", "listed twice"},
		{`{{ labels "large" }}`, "", "more than 4096 bytes"},
		{`{{ .Platform.Name }} {{ .HCO.Namespace }} {{ .Namespace }} {{ .Platform.Kind }}`, "kv kvns vmlet KubeVirt", ""},
		{`{{ .Hardware.kvmPresent }}`, "false", ""},
		{`{{ .Cluster.Version }} {{ .Cluster.AtLeast "1.34" }} {{ .Cluster.AtLeast "1.35.1" }}`, "v1.34.9 true false", ""},
		{`{{ .Cluster.AtLeast "new" }}`, "", `could not parse "new"`},
		{`{{ .Cluster.Capabilities.Defined "widgets.example.com" }} {{ .Cluster.Capabilities.Defined "none.example.com" }}`, "true false", ""},
		{`{{ .Asset.Name }} {{ .Asset.Component }} {{ .Asset.Install }} {{ .Asset.Phase }}`, "x ConfigMap opt-in 1", ""},
		{`{{ .Hardware.none }}`, "", "no entry for key"},
		{`{{ .Platform.Object.spec.none }}`, "", "no entry for key"},
		{`{{ dig "spec" "count" 7 .Platform.Object }} {{ dig "spec" "none" "x" 7 .Platform.Object }} {{ dig "spec" "count" "x" 7 .Platform.Object }}`, "3 7 7", ""},
		{`{{ range list "a" "b" }}{{ . }}{{ end }}{{ range splitList "," "c, d" }}{{ trim . }}{{ end }}`, "abcd", ""},
		{`{{ b64enc "a" }} {{ readAsset "f" }} {{ (fromYaml "a: 1").a }}`, "YQ== file 1", ""},
		{`{{ readAsset "../metadata.yaml" }}`, "", "does not exist"},
		{`"{{ nindent 2 "a" | toJson }} {{ indent 1 "b" }}"`, "", "did not find"},
		{`{{ toYaml (list 1 2) | b64enc }}`, "LSAxCi0gMg==", ""},
		{`{{ crdExists "widgets.example.com" }} {{ crdExists "none.example.com" }}`, "true false", ""},
		{`{{ crdHasEnum "widgets.example.com" "spec.mode" "B" }} {{ crdHasEnum "widgets.example.com" "spec.modes" "C" }} {{ crdHasEnum "widgets.example.com" "spec.mode" "C" }} {{ crdHasEnum "none" "x" "y" }}`, "true true false false", ""},
		{`{{ (lookup "storage.k8s.io/v1" "StorageClass" "" "a").metadata.name }} {{ if lookup "storage.k8s.io/v1" "StorageClass" "" "c" }}c{{ end }}`, "a", ""},
		{`{{ range lookupAll "storage.k8s.io/v1" "StorageClass" }}{{ .metadata.name }}{{ end }}`, "ab", ""},
		{`{{ lookup "v1" "Node" "" "x" }}`, "", "reads of asset x in metadata.yaml lacks v1 Node"},
		{`{{ if lookup "v1" "Secret" "mine" "x" }}{{ end }}none`, "none", ""},
		{`{{ lookup "v1" "Secret" "theirs" "x" }}`, "", "lacks v1 Secret"},
		{`{{ matches "a+" "aaa" }} {{ matches "a+" "aab" }} {{ matches "a+|b" "aab" }} {{ matches "a" "a\n" }}`, "true false false false", ""},
		{`{{ matches "(" "a" }}`, "", "missing closing"},
		{`{{ fail "want a number" }}`, "", "want a number"},
		{`{{ now }}`, "", `function "now" not defined`},
		{`{{ range lookupAll "storage.k8s.io/v1" "StorageClass" }}{{ range splitList "" (readAsset "large") }}{{ readAsset "large" }}{{ end }}{{ end }}`, "", "more than 1048576 bytes"},
	} {
		a := &catalog.Asset{Name: "x", Path: "active/x.tpl", Component: "ConfigMap", Install: catalog.OptIn, Phase: 1, Template: true, Reads: reads, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
		a.Text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  v: " + c.text + "\n"
		r := Renderer{From: objects, Files: fstest.MapFS{"f": {Data: []byte("file")}, "large": {Data: []byte(strings.Repeat("x", 1<<11))}}}
		o, err := r.Object(t.Context(), a, f)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: fault %v, want %q", c.text, err, c.fault)
			continue
		}
		if err == nil {
			value, _, _ := unstructured.NestedFieldNoCopy(o.Object, "data", "v")
			if got := strings.TrimSpace(toText(value)); got != c.want {
				t.Errorf("%s: %q, want %q", c.text, got, c.want)
			}
		}
		if strings.Contains(c.text, "lookup") && c.fault == "" || strings.Contains(c.text, "crdHasEnum") {
			r.From = failing{}
			if _, err := r.Object(t.Context(), a, f); err == nil || !strings.Contains(err.Error(), "no answer") {
				t.Errorf("%s: an API server that does not answer makes %v, want its error", c.text, err)
			}
		}
	}
}

func toText(value any) string {
	if s, is := value.(string); is {
		return s
	}
	text, _ := toJSON(value)
	return text
}

// TestObjects: one object of the kind that the text has, or none.
func TestObjects(t *testing.T) {
	for _, c := range []struct{ text, want, fault string }{
		{"apiVersion: v1\nkind: A\nmetadata: {name: a}", "a", ""},
		{"{{ if false }}x{{ end }}", "", ""},
		{"# nothing", "", ""},
		{"apiVersion: v1\nkind: B\nmetadata: {name: a}", "", "want an object of /v1, Kind=A"},
		{"apiVersion: v1\nkind: A\nmetadata: {}", "", "with a name"},
		{"a: 1\na: 2", "", "already set"},
		{"apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nx: 1", "", "several documents"},
	} {
		a := &catalog.Asset{Path: "f", Template: true, Text: c.text, Kind: schema.GroupVersionKind{Version: "v1", Kind: "A"}}
		o, err := Renderer{}.Object(t.Context(), a, facts.Facts{})
		got := ""
		if o != nil {
			got = o.GetName()
		}
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %q, %v; want %q, %q", c.text, got, err, c.want, c.fault)
		}
	}
}
