package anchor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// object is one with the annotations KEY=VALUE, below Prefix.
func object(kind, namespace, name string, annotations ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
	o.SetNamespace(namespace)
	o.SetName(name)
	all := make(map[string]string)
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		all[Prefix+key] = value
	}
	o.SetAnnotations(all)
	return o
}

// TestScope: what the gate's annotation says (A1 to A3).
func TestScope(t *testing.T) {
	for _, c := range []struct {
		value string
		has   bool
		on    bool
		in    string // NAME, or NAME of GROUP, that is included
		out   string
	}{
		{"", false, false, "", "a"},
		{"", true, false, "", "a"},
		{"  ", true, false, "", "a"},
		{" , ,", true, false, "", "a"},
		{"false", true, false, "", "false"},
		{" true ", true, true, "a of b", ""},
		{"True", true, true, "True", "a"},
		{"a, c ,,", true, true, "a", "b"},
		{"a,c", true, true, "x of c", "x of d"},
		{"a", true, true, "a of x", "b"},
	} {
		s := ParseScope(c.value, c.has)
		if s.On() != c.on {
			t.Errorf("%q: on is %v, want %v", c.value, s.On(), c.on)
		}
		name, group, _ := strings.Cut(c.in, " of ")
		if c.in != "" && !s.Includes(name, group) {
			t.Errorf("%q does not include %s", c.value, c.in)
		}
		name, group, _ = strings.Cut(c.out, " of ")
		if c.out != "" && s.Includes(name, group) {
			t.Errorf("%q includes %s", c.value, c.out)
		}
	}
	if got := ParseScope("b,x,a", true).Unknown(func(name string) bool { return name == "a" || name == "b" }); fmt.Sprint(got) != "[x]" {
		t.Errorf("unknown are %v, want x", got)
	}
	if ParseScope("a", true).Includes("b", "") {
		t.Error("an asset without a group is included by another one's name")
	}
}

// TestChoose: which object is the anchor, and whose annotations count.
func TestChoose(t *testing.T) {
	hco := object(KindHyperConverged, "h", "hco", "autopilot=a", "x=1")
	kv := object(KindKubeVirt, "k", "kv", "x=2", "y=2")
	rules := object(KindKubeVirt, "k", "kv", "disabled-resources=[{kind: A}, {kind: A, name: x}]")
	cm := object(KindConfigMap, "vmlet", ConfigMapName, "autopilot=true", "z=3")
	for name, c := range map[string]struct {
		hco, kv, cm *unstructured.Unstructured
		want        string
	}{
		"nothing":          {nil, nil, nil, ""},
		"ConfigMap alone":  {nil, nil, cm, "ConfigMap vmlet/kubevirt map[autopilot:true z:3] true []"},
		"KubeVirt without": {nil, kv, cm, "KubeVirt k/kv map[autopilot:true x:2 y:2 z:3] true []"},
		"two gates":        {hco, kv, cm, "HyperConverged h/hco map[autopilot:a x:1 y:2 z:3] false [HyperConverged h/hco and ConfigMap vmlet/vmlet-platform]"},
		"KubeVirt alone":   {nil, kv, nil, "KubeVirt k/kv map[x:2 y:2] false []"},
		"a rule's fault":   {nil, rules, nil, "KubeVirt k/kv map[disabled-resources:[{kind: A}, {kind: A, name: x}]] false [" + Disabled + "[0]: kind and name are required] [A/x]"},
	} {
		a, got := Choose(c.hco, c.kv, c.cm, "vmlet"), ""
		if a != nil {
			short := make(map[string]string)
			for key, value := range a.Annotations {
				short[strings.TrimPrefix(key, Prefix)] = value
			}
			var warnings []string
			for _, w := range a.warnings {
				warnings = append(warnings, strings.TrimSuffix(strings.TrimPrefix(w.Error(), Gate+" is on "), ": that of the first counts; take it from the others"))
			}
			got = fmt.Sprintf("%s %s/%s %v %v %v", a.Kind, a.Namespace, a.Name, short, a.Scope.All, warnings)
			if len(a.Exclusions) > 0 {
				got += fmt.Sprint(" ", a.Exclusions)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestOldest: the oldest that is not being deleted; of two that are as old, the first by its names.
func TestOldest(t *testing.T) {
	made := func(name string, minute int) *unstructured.Unstructured {
		o := object(KindKubeVirt, "k", name)
		o.SetCreationTimestamp(metav1.Date(2026, 7, 1, 12, minute, 0, 0, time.UTC))
		return o
	}
	deleted := made("deleted", 0)
	deleted.SetDeletionTimestamp(new(metav1.Now()))
	for _, c := range []struct {
		all  []*unstructured.Unstructured
		want string
	}{
		{nil, ""},
		{[]*unstructured.Unstructured{deleted}, ""},
		{[]*unstructured.Unstructured{made("b", 2), made("a", 3), deleted}, "b"},
		{[]*unstructured.Unstructured{made("a", 3), made("b", 2)}, "b"},
		{[]*unstructured.Unstructured{made("b", 2), made("a", 2)}, "a"},
	} {
		got := ""
		if o := Oldest(c.all); o != nil {
			got = o.GetName()
		}
		if got != c.want {
			t.Errorf("of %d: %q, want %q", len(c.all), got, c.want)
		}
	}
}

func TestFeatureGates(t *testing.T) {
	with := func(kind string, gates any, path ...string) *Anchor {
		o := map[string]any{}
		_ = unstructured.SetNestedField(o, gates, path...)
		return &Anchor{Kind: kind, Object: o, Annotations: map[string]string{}}
	}
	hco := []string{"spec", "featureGates"}
	kv := []string{"spec", "configuration", "developerConfiguration", "featureGates"}
	for name, c := range map[string]struct {
		a    *Anchor
		want bool
	}{
		"v1beta1, on":       {with(KindHyperConverged, map[string]any{"G": true}, hco...), true},
		"v1beta1, off":      {with(KindHyperConverged, map[string]any{"G": false}, hco...), false},
		"v1, named":         {with(KindHyperConverged, []any{map[string]any{"name": "G"}}, hco...), true},
		"v1, disabled":      {with(KindHyperConverged, []any{map[string]any{"name": "G", "state": "Disabled"}}, hco...), false},
		"KubeVirt":          {with(KindKubeVirt, []any{"F", "G"}, kv...), true},
		"KubeVirt, another": {with(KindKubeVirt, []any{"F"}, kv...), false},
		"no object at all":  {with(KindKubeVirt, "G", "spec"), false},
		"annotation":        {&Anchor{Annotations: map[string]string{FeatureGates: "F, G"}}, true},
	} {
		if got := c.a.FeatureGate("G"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestExclusions: rules with wildcards (A40, A41).
func TestExclusions(t *testing.T) {
	for _, c := range []struct {
		rules, object string // object: KIND NAMESPACE NAME
		want          bool
		fault         string
	}{
		{"[{kind: A, name: x}]", "A n x", true, ""},
		{"[{kind: A, name: x}]", "A - x", true, ""},
		{"[{kind: A, name: x}]", "a n x", false, ""},
		{"[{kind: A, name: 'x*'}]", "A n xyz", true, ""},
		{"[{kind: A, name: '*', namespace: 'prod-*'}]", "A prod-1 x", true, ""},
		{"[{kind: A, name: '*', namespace: 'prod-*'}]", "A test x", false, ""},
		{"[{kind: A, name: '*', namespace: 'prod-*'}]", "A - x", false, ""},
		{"[{kind: B, name: x}, {kind: A, name: x}]", "A n x", true, ""},
		{"[{kind: B}, {kind: A, name: x}]", "A n x", true, "[0]: kind and name are required"},
		{"[{kind: A, name: '['}]", "A n [", false, "is no pattern"},
		{"{kind: A, name: x}", "A n x", false, "no YAML list"},
		{"", "A n x", false, ""},
		{"[&x {kind: A, name: x}, *x]", "A n x", false, "has a &"},
		{strings.Repeat(" ", 70000), "A n x", false, "more than"},
		{"[" + strings.Repeat("{kind: A, name: x},", 257) + "]", "A n x", false, "more than"},
	} {
		rules, err := parseExclusions(c.rules)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%.60s: fault %v, want %q", c.rules, err, c.fault)
		}
		o := strings.Fields(strings.ReplaceAll(c.object, "-", ""))
		if strings.Contains(c.object, " - ") {
			o = []string{o[0], "", o[1]}
		} else {
			o = strings.Fields(c.object)
		}
		got := false
		for _, r := range rules {
			got = got || r.Matches(o[0], o[1], o[2])
		}
		if got != c.want {
			t.Errorf("%.60s matches %s: %v, want %v", c.rules, c.object, got, c.want)
		}
	}
}
