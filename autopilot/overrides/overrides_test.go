package overrides

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

const object = `{apiVersion: v1, kind: KIND, metadata: {name: a, namespace: web, labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot, x: "1"}}, spec: {a: 1, list: [{b: 1}], m: {c: 1, d: 2}}}`

// TestPatch: what is refused, and that it is all or nothing (A31 to A34).
func TestPatch(t *testing.T) {
	one := func(op, path, value string) string {
		return fmt.Sprintf(`[{"op":%q,"path":%q,"value":%s}]`, op, path, value)
	}
	whole := `{"apiVersion":"v1","kind":"DaemonSet","metadata":{"name":"b"}}`
	for name, c := range map[string]struct {
		kind, patch string
		want, fault string // want: the spec afterwards
	}{
		"add":                  {"MachineConfig", one("add", "/spec/new", "7"), `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2},"new":7}`, ""},
		"below a list":         {"KubeletConfig", one("replace", "/spec/list/0/b", "7"), `{"a":1,"list":[{"b":7}],"m":{"c":1,"d":2}}`, ""},
		"appended":             {"X", one("add", "/spec/list/-", "7"), `{"a":1,"list":[{"b":1},7],"m":{"c":1,"d":2}}`, ""},
		"looks like a name":    {"X", one("add", "/kindred", "1"), `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		"metadata, names-x":    {"X", one("add", "/metadata/names-x", "1"), `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		"second one fails":     {"X", `[{"op":"replace","path":"/spec/a","value":2},{"op":"replace","path":"/spec/none","value":2}]`, "", "none"},
		"test fails":           {"X", `[{"op":"test","path":"/spec/a","value":2},{"op":"replace","path":"/spec/a","value":3}]`, "", "testing"},
		"kind":                 {"X", one("replace", "/kind", `"Y"`), "", "forbidden"},
		"name":                 {"X", one("replace", "/metadata/name", `"b"`), "", "forbidden"},
		"namespace":            {"X", one("add", "/metadata/namespace", `"b"`), "", "forbidden"},
		"version":              {"X", one("replace", "/apiVersion", `"v2"`), "", "forbidden"},
		"uid":                  {"X", one("add", "/metadata/uid", `"b"`), "", "forbidden"},
		"managed fields":       {"X", one("add", "/metadata/managedFields/0", `{}`), "", "forbidden"},
		"status":               {"X", one("add", "/status/x", `1`), "", "forbidden"},
		"whole object":         {"X", one("replace", "", whole), "", "forbidden"},
		"whole object, added":  {"X", one("add", "", whole), "", "forbidden"},
		"metadata":             {"X", one("replace", "/metadata", `{"name":"b"}`), "", "forbidden"},
		"moved from name":      {"X", `[{"op":"move","from":"/metadata/name","path":"/spec/x"}]`, "", "forbidden"},
		"copied to kind":       {"X", `[{"op":"copy","from":"/spec/a","path":"/kind"}]`, "", "forbidden"},
		"Path beside path":     {"X", `[{"op":"replace","path":"/spec/a","Path":"/kind","value":"Y"}]`, `{"a":"Y","list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		"label":                {"X", one("remove", "/metadata/labels/platform.kubevirt.io~1managed-by", "0"), "", "forbidden"},
		"all labels":           {"X", one("replace", "/metadata/labels", "{}"), "", "forbidden"},
		"both faults are told": {"X", `[{"op":"remove","path":"/kind"},{"op":"remove","path":"/metadata/name"}]`, "", "[1].path"},
		"a role":               {"ClusterRole", one("add", "/spec/new", "7"), "", "sensitive resource kind: ClusterRole"},
		"a webhook":            {"ValidatingWebhookConfiguration", one("add", "/spec/new", "7"), "", "sensitive resource kind"},
		"constraints":          {"SecurityContextConstraints", one("add", "/spec/new", "7"), "", "sensitive resource kind"},
		"no list":              {"X", `{"op":"add"}`, "", "no JSON list"},
		"large":                {"X", "[" + strings.Repeat(" ", 70000) + "]", "", "more than"},
		"long":                 {"X", "[" + strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/spec/a","value":1},`, 257), ",") + "]", "", "more than 256 operations"},
		"copies":               {"X", "[" + strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/spec","path":"/spec/list/-"},`, 16), ",") + "]", "", "exceeding the limit"},
		"no path":              {"X", `[{"op":"add","value":1}]`, "", "path"},
	} {
		before := parse(t, strings.Replace(object, "KIND", c.kind, 1))
		copied := before.DeepCopy()
		after, _, err := Patch(before, c.patch)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: fault %v, want %q", name, err, c.fault)
			continue
		}
		if fmt.Sprint(before) != fmt.Sprint(copied) {
			t.Errorf("%s: the object itself is changed", name)
		}
		if err == nil {
			if got, _ := json.Marshal(after.Object["spec"]); string(got) != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
	}
}

// TestMask: fields are removed, and what can't be said is a fault (A37 to A39).
func TestMask(t *testing.T) {
	for _, c := range []struct{ fields, want, fault string }{
		{"/spec/a", `{"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		{" /spec/a , /spec/m/c,", `{"list":[{"b":1}],"m":{"d":2}}`, ""},
		{"/spec/list", `{"a":1,"m":{"c":1,"d":2}}`, ""},
		{"/spec/none/x,/none", `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		{"/metadata/labels/x", `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		{"/metadata/annotations/x~1y~0z", `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		{"spec/a", "", "does not begin with /"},
		{"/spec/list/0/b", `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""}, // as it is live
		{"/spec/list/b/0", "", `/spec/list/b/0: "b" is not the index`},
		{"/spec/list/-", "", `"-" is not the index`},
		{"/whole/a", `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		{"/whole,/empty/a", `{"a":1,"list":[{"b":1}],"m":{"c":1,"d":2}}`, ""},
		{"/spec/a~2", "", "~ is written ~0"},
		{"/metadata/name", "", "forbidden"},
		{"/kind", "", "forbidden"},
		{"/metadata/labels/platform.kubevirt.io~1managed-by", "", "forbidden"},
		{"/metadata/labels", "", "forbidden"},
		{"x,/kind", "", "/kind"},
		{strings.Repeat("/a,", 300), "", "more than"},
		{strings.Repeat("a,", 300), "", "more than"}, // a fault for each would be a long text
	} {
		o := parse(t, strings.Replace(object, "spec:", "whole: {a: 1}, empty: {a: 1}, spec:", 1))
		live := parse(t, strings.NewReplacer("labels:", `managedFields: [
 {manager: me, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:whole": {}, "f:empty": {}, "f:spec": {"f:a": {}, "f:m": {}}}},
 {manager: other, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:m": {"f:c": {}}}}}], labels:`,
			"spec:", "whole: {a: 1}, empty: {}, spec:").Replace(object))
		fields, err := ParseIgnored(c.fields)
		var masked *unstructured.Unstructured
		if err == nil {
			masked, err = Mask(o, live, fields)
		}
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%.50s: fault %v, want %q", c.fields, err, c.fault)
			continue
		}
		if err == nil {
			if got, _ := json.Marshal(masked.Object["spec"]); string(got) != c.want {
				t.Errorf("%s: %s, want %s", c.fields, got, c.want)
			}
		}
	}
}

// TestMaskInside: what is inside a list, or a map that is replaced as a whole, is as it is live.
func TestMaskInside(t *testing.T) {
	const wanted = `{units: [{name: a, up: true, text: ours}, {name: b, text: ours}], plain: [1, 2], whole: {a: 1, b: {c: 1}}, m: {x: 1}}`
	for _, c := range []struct{ fields, live, from, to string }{
		{"/spec/units/0/text", `{units: [{name: a, up: true, text: theirs}, {name: b, text: theirs}]}`, "up: true, text: ours", "up: true, text: theirs"},
		{"/spec/units/1/text", `{units: [{name: new}, {name: a, text: theirs}, {name: b, text: theirs}]}`, "name: b, text: ours", "name: b, text: theirs"},
		{"/spec/units/0/text", `{units: [{name: b, text: theirs}]}`, "", ""},
		{"/spec/units/0/text", `{units: [{name: a, up: true}]}`, "up: true, text: ours", "up: true"},
		{"/spec/units/0/up,/spec/units/0/text", `{units: [{name: a, up: false, text: theirs}]}`, "up: true, text: ours", "up: false, text: theirs"},
		{"/spec/units/0/name", `{units: [{name: z, text: theirs}]}`, "name: a", "name: z"},
		{"/spec/units/1", `{units: [{name: b, text: theirs, more: 1}]}`, "name: b, text: ours", "name: b, text: theirs, more: 1"},
		{"/spec/units/7/text,/spec/units/0/none/x", `{units: [{name: a}]}`, "", ""},
		{"/spec/units/0/new/x", `{units: [{name: a, new: {x: 1, y: 2}}]}`, "up: true", "up: true, new: {x: 1}"},
		{"/spec/plain/1", `{plain: [7, 8, 9]}`, "[1, 2]", "[1, 8]"},
		{"/spec/plain/1", `{plain: [7]}`, "", ""},
		{"/spec/plain/1", `{plain: {a: 1}}`, "", ""},
		{"/spec/whole/a", `{whole: {a: 7, b: {c: 7}}}`, "a: 1", "a: 7"},
		{"/spec/whole/b/c", `{whole: {a: 7, b: {c: 7}}}`, "c: 1", "c: 7"},
		{"/spec/whole/a", `{whole: {b: {c: 7}}}`, "a: 1, ", ""},
		{"/spec/m/x", `{m: {x: 7}}`, "x: 1", ""},
	} {
		object := func(spec string) *unstructured.Unstructured {
			return parse(t, "{apiVersion: v1, kind: X, metadata: {name: x, managedFields: ["+
				`{manager: me, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:units": {}, "f:plain": {}, "f:whole": {}, "f:m": {"f:x": {}}}}}]}, spec: `+spec+"}")
		}
		fields, err := ParseIgnored(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		masked, err := Mask(object(wanted), object(c.live), fields)
		if err != nil {
			t.Errorf("%s on %s: %v", c.fields, c.live, err)
			continue
		}
		if want := object(strings.Replace(wanted, c.from, c.to, 1)); !reflect.DeepEqual(masked.Object, want.Object) {
			t.Errorf("%s on %s: %v, want %v", c.fields, c.live, masked.Object["spec"], want.Object["spec"])
		}
	}
}

// TestOwned: just what the manager owns by apply is handed over, with its live values.
func TestOwned(t *testing.T) {
	live := parse(t, strings.Replace(object, "labels:", `managedFields: [
 {manager: me, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:a": {}}}},
 {manager: me, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:list": {}, "f:m": {".": {}, "f:c": {}, "f:gone": {}}}}}], labels:`, 1))
	for _, c := range []struct{ fields, want string }{
		{"/spec/a", "null"},
		{"/spec/m/c", `{"spec":{"m":{"c":1}}}`},
		{"/spec/m/d", "null"},
		{"/spec/m", `{"spec":{"m":{"c":1}}}`},
		{"/spec/list,/spec/m/c", `{"spec":{"list":[{"b":1}],"m":{"c":1}}}`},
		{"/spec/m/gone", "null"},
	} {
		fields, err := ParseIgnored(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(Owned(live, "me", fields)); string(got) != c.want {
			t.Errorf("%s: %s, want %s", c.fields, got, c.want)
		}
	}
	if Owned(live, "other", [][]string{{"spec", "m"}}) != nil || All(live, "other") != nil {
		t.Error("another manager owns something")
	}
	part := map[string]any{"spec": map[string]any{"m": map[string]any{"d": 2}}}
	if got, _ := json.Marshal(Merge(All(live, "me"), part)); string(got) != `{"spec":{"list":[{"b":1}],"m":{"c":1,"d":2}}}` {
		t.Errorf("all that it owns, with more: %s", got)
	}
}

// TestTaken: what others own and the manager does not was theirs, or is now; all else proves nothing.
func TestTaken(t *testing.T) {
	live := parse(t, `{metadata: {managedFields: [
 {manager: me, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:mine": {}, "f:both": {}, "f:whole": {}}},
 {manager: other, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:both": {}, "f:theirs": {"f:a": {}}, "f:selector": {}}}]}}`)
	for fields, want := range map[string]bool{
		"/mine": false, "/both": false, "/none": false, "/whole/a": false, "/theirs/b": false,
		"/theirs/a": true, "/theirs": true, "/selector/a": true, "/mine,/theirs": true, "": false,
	} {
		keys, err := ParseIgnored(fields)
		if err != nil {
			t.Fatal(err)
		}
		if got := Taken(live, "me", keys); got != want {
			t.Errorf("%s: %v, want %v", fields, got, want)
		}
		if Taken(live, "nobody", keys) {
			t.Errorf("%s is taken from a manager that never had anything", fields)
		}
	}
	live.SetManagedFields(live.GetManagedFields()[:1])
	if Taken(live, "me", [][]string{{"none"}}) {
		t.Error("a field is taken, and nobody else owns any")
	}
}
