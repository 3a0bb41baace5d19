package catalog

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// TestFaults: a catalogue that is wrong says all of it, each by its field.
func TestFaults(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	_, err := Load(fstest.MapFS{
		"metadata.yaml": file(`assets:
- {name: ok, path: active/ok.yaml, phase: 1, install: always, component: ConfigMap, reconcile_order: 1}
- {name: ok, path: active/none.yaml, phase: 1, install: maybe, component: ConfigMap, reconcile_order: 1}
- {name: "true", group: A_B, path: ../x.yaml, install: opt-in, component: "", gate_crd: x}
- {name: a, path: active/ok.txt, install: always, component: X, conditions: [{type: annotation}, {type: moon, key: x}, {type: feature-gate, value: x, key: y}], reads: [{group: x}]}
- {name: two, path: active/two.yaml, install: always, component: X}
- {name: kindless, path: active/kindless.yaml.tpl, install: always, component: X}
- {name: nameless, path: active/nameless.yaml, install: always, component: X}
- {name: variable, path: active/variable.yaml.tpl, install: always, component: X}
- {name: role, path: active/role.yaml, install: always, component: X}
- {name: moon, path: active/moon.yaml, install: opt-in, component: X, conditions: [{type: hardware-detection, detector: moon}]}
- {name: again, path: active/moon.yaml, install: always, component: X}
- {name: large, path: active/large.yaml, install: always, component: X}
`),
		"active/ok.yaml":           file("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ok\n"),
		"active/moon.yaml":         file("apiVersion: v1\nkind: A\nmetadata:\n  name: moon\n"),
		"active/two.yaml":          file("apiVersion: v1\nkind: A\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: A\nmetadata:\n  name: b\n"),
		"active/kindless.yaml.tpl": file("apiVersion: v1\nkind: {{ .X }}\nmetadata:\n  name: a\n"),
		"active/nameless.yaml":     file("apiVersion: v1\nkind: A\nmetadata:\n  labels: {name: x}\nspec:\n  name: x\n"),
		"active/variable.yaml.tpl": file("apiVersion: v1\nkind: A\nmetadata:\n  name: {{ $x }}\n"),
		"active/role.yaml":         file("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: a\n"),
		"active/large.yaml":        file(strings.Repeat("#", maxFile+1)),
		"tombstones/a/x.yaml":      file("apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nx: {\n"),
	})
	if err == nil {
		t.Fatal("there is no fault")
	}
	for _, want := range []string{
		"assets[1] (ok): name is listed twice", "assets[1] (ok): install: \"maybe\"", "assets[1] (ok): path: open active/none.yaml",
		`assets[2] (true): name: "true" is no name`, `assets[2] (true): group: "A_B"`, "assets[2] (true): conditions: an opt-in asset",
		"assets[2] (true): component is empty", `assets[2] (true): gate_crd: "x"`, `assets[2] (true): path: "../x.yaml" is not below active/`,
		"assets[3] (a): conditions[0]", "assets[3] (a): conditions[1]", "assets[3] (a): conditions[2]", "assets[3] (a): reads[0]", "assets[3] (a): path: \"active/ok.txt\" ends neither",
		"assets[4] (two): active/two.yaml: apiVersion is listed twice", "assets[5] (kindless): active/kindless.yaml.tpl: want apiVersion and kind",
		"assets[6] (nameless): active/nameless.yaml: want metadata.name", "assets[7] (variable): active/variable.yaml.tpl: want metadata.name",
		"assets[8] (role): active/role.yaml: kind Role grants rights", "assets[9] (moon): conditions[0].detector: \"moon\"", "assets[10] (again): it makes the same object as moon", "assets[11] (large): path: active/large.yaml has more",
		"tombstones/a/x.yaml: document 0: want apiVersion", "tombstones/a/x.yaml: document 1:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the faults lack %q", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
	if _, err := Load(fstest.MapFS{"metadata.yaml": file("assets:\n- {name: a, colour: red}\n")}); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("an unknown field: %v", err)
	}
}

// TestOrder: by phase, order and name, whatever the file's order.
func TestOrder(t *testing.T) {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for _, a := range c.Assets {
		key := fmt.Sprintf("%d %03d %s", a.Phase, a.Order, a.Name)
		if key <= last {
			t.Errorf("%s is after %s", key, last)
		}
		last = key
		if c.Named(a.Name) != a || !c.Knows(a.Name) || a.Group != "" && !c.Knows(a.Group) {
			t.Errorf("%s is not found by its name or group", a.Name)
		}
		if a.Kind.Kind != a.Component {
			t.Errorf("%s: component %s, kind %s", a.Name, a.Component, a.Kind.Kind)
		}
	}
	if c.Named("none") != nil || c.Knows("none") {
		t.Error("there is an asset none")
	}
}
