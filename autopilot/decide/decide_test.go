package decide

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// cluster has an anchor with annotations, as YAML, and the CRD of Widgets.
func cluster(t *testing.T, annotations string) facts.Facts {
	t.Helper()
	o := parse(t, "{kind: KubeVirt, metadata: {name: kv, namespace: web, annotations: {"+annotations+"}}}")
	widgets := parse(t, `{metadata: {name: widgets.example.com}, spec: {group: example.com, names: {kind: Widget, plural: widgets}, versions: [{name: v1, served: true}, {name: v0, served: false}]},
 status: {conditions: [{type: Established, status: "True"}]}}`)
	return facts.Facts{
		Anchor: anchor.Choose(nil, o, nil, "vmlet"), Kinds: facts.KindsOf([]*unstructured.Unstructured{widgets}),
		Namespaces: map[string]bool{"web": true, "going": false}, Hardware: map[string]bool{"kvmPresent": true, "gpuPresent": false}, Namespace: "vmlet",
	}
}

const on = `platform.kubevirt.io/autopilot: "true"`

// TestDecide: each way out, in the order in which they are looked at.
func TestDecide(t *testing.T) {
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	rendered := "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: web}, spec: {a: 1}}"
	with := func(annotations string) string {
		return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: web, annotations: {" + annotations + "}}, spec: {a: 1}}"
	}
	for name, c := range map[string]struct {
		anchor   string
		change   func(*Input)
		live     string
		want     Action
		reason   string
		detail   string
		more     string // of the decision, in words
		rendered string
	}{
		"no annotation":                     {"", nil, "", Skip, ReasonOff, "", "", ""},
		"no anchor":                         {"", func(in *Input) { in.Facts.Anchor = nil }, "", Skip, ReasonOff, "", "", ""},
		"not listed":                        {"platform.kubevirt.io/autopilot: other", nil, "", Skip, ReasonScope, "", "", ""},
		"by its group":                      {"platform.kubevirt.io/autopilot: g", nil, "", Compare, "", "", "opted in", ""},
		"no CRD":                            {on, func(in *Input) { in.Asset.Kind.Kind = "Gadget" }, "", Skip, ReasonCRD, "gadgets.example.com", "", ""},
		"version not served":                {on, func(in *Input) { in.Asset.Kind.Version = "v0" }, "", Skip, ReasonCRD, "widgets.example.com", "", ""},
		"gate CRD":                          {on, func(in *Input) { in.Asset.GateCRD = "gates.example.com" }, "", Skip, ReasonCRD, "gates.example.com", "", ""},
		"CRD of an asset that is asked for": {"platform.kubevirt.io/autopilot: w", func(in *Input) { in.Asset.GateCRD = "gates.example.com" }, "", Skip, ReasonCRD, "", "opted in", ""},
		"CRD and conditions": {on, func(in *Input) {
			in.Asset.GateCRD, in.Asset.Conditions = "gates.example.com", []catalog.Condition{{Type: catalog.ConditionHardware, Detector: "gpuPresent"}}
		}, "", Skip, ReasonCRD, "", "", ""},
		"conditions": {on + `, a/b: x`, func(in *Input) {
			in.Asset.Conditions = []catalog.Condition{
				{Type: catalog.ConditionAnnotation, Key: anchor.Prefix + "autopilot"}, {Type: catalog.ConditionAnnotation, Key: anchor.Prefix + "c", Value: "1"},
				{Type: catalog.ConditionHardware, Detector: "kvmPresent"}, {Type: catalog.ConditionHardware, Detector: "gpuPresent"}, {Type: catalog.ConditionFeature, Value: "F"},
			}
		}, "", Skip, ReasonConditions, "Conditions not met: platform.kubevirt.io/c=1, gpuPresent, featureGate:F", "", ""},
		"template fails":        {on, func(in *Input) { in.RenderError = errors.New("broken") }, "", Fail, ReasonRender, "broken", "opted in", ""},
		"empty":                 {on, func(in *Input) { in.Rendered = nil }, "", Skip, ReasonEmpty, "", "opted in", ""},
		"excluded":              {on + `, platform.kubevirt.io/disabled-resources: "[{kind: Widget, name: 'w*'}]"`, nil, with("platform.kubevirt.io/mode: unmanaged"), Filter, ReasonExcluded, "Widget/w*", "opted in", ""},
		"unmanaged":             {on, nil, with("platform.kubevirt.io/mode: unmanaged, platform.kubevirt.io/reconcile-paused: \"true\""), Leave, ReasonUnmanaged, "", "opted in unmanaged", ""},
		"another mode":          {on, nil, with("platform.kubevirt.io/mode: other"), Compare, "", "", "opted in", ""},
		"paused":                {on, nil, with("platform.kubevirt.io/reconcile-paused: \"true\""), Leave, ReasonPaused, "remove the annotation", "opted in", ""},
		"paused: yes":           {on, nil, with("platform.kubevirt.io/reconcile-paused: \"yes\""), Compare, "", "", "opted in", ""},
		"paused, remembered":    {on, func(in *Input) { in.Paused = true }, rendered, Leave, ReasonPaused, "", "opted in", ""},
		"paused, on the anchor": {on + `, platform.kubevirt.io/paused-resources: "X/y, Widget/web/w"`, nil, "", Leave, ReasonPaused, "", "opted in", ""},
		"no namespace":          {on, nil, "", Skip, ReasonNamespace, "none", "opted in", strings.Replace(rendered, "namespace: web", "namespace: none", 1)},
		"namespace is going":    {on, nil, "", Skip, ReasonNamespace, "going", "opted in", strings.Replace(rendered, "namespace: web", "namespace: going", 1)},
		"bad mask":              {on, nil, with("platform.kubevirt.io/ignore-fields: spec"), Fail, ReasonInvalidIgnore, "does not begin", "opted in ignore", ""},
		"mask":                  {on, nil, with("platform.kubevirt.io/ignore-fields: /spec/a"), Compare, "", "", "opted in ignore spec map[]", ""},
		"bad patch":             {on, nil, with("platform.kubevirt.io/patch: x"), Compare, "", "", "opted in patch fault spec map[a:1]", ""},
		"patch":                 {on, nil, with(`platform.kubevirt.io/patch: '[{"op":"replace","path":"/spec/a","value":2}]'`), Compare, "", "", "opted in patch of 1 spec map[a:2]", ""},
		"patch, then mask": {on, nil, with(`platform.kubevirt.io/ignore-fields: /spec/b, platform.kubevirt.io/patch: '[{"op":"add","path":"/spec/b","value":2}]'`),
			Compare, "", "", "opted in patch ignore of 1 spec map[a:1]", ""},
		"nothing to do": {on, func(in *Input) { in.Drift = None }, rendered, Keep, "", "", "opted in", ""},
		"drift":         {on, func(in *Input) { in.Drift = Found }, rendered, Apply, "", "", "opted in", ""},
	} {
		in := Input{Asset: &catalog.Asset{Name: "w", Group: "g", Kind: widget}, Facts: cluster(t, c.anchor), Rendered: parse(t, rendered)}
		if c.rendered != "" {
			in.Rendered = parse(t, c.rendered)
		}
		if c.live != "" {
			in.Live = parse(t, c.live)
		}
		if c.change != nil {
			c.change(&in)
		}
		before := fmt.Sprint(in.Rendered, in.Live)
		d := Decide(in)
		if d.Action != c.want || d.Reason != c.reason || !strings.Contains(d.Detail, c.detail) {
			t.Errorf("%s: %s %s (%s), want %s %s (%s)", name, d.Action, d.Reason, d.Detail, c.want, c.reason, c.detail)
		}
		if got := words(d); !strings.HasPrefix(got, c.more) || d.OptedIn != strings.HasPrefix(c.more, "opted in") {
			t.Errorf("%s: %s, want %s", name, got, c.more)
		}
		if fmt.Sprint(in.Rendered, in.Live) != before {
			t.Errorf("%s: what was given is changed", name)
		}
		if (d.Action == Compare || d.Action == Apply) && d.Object.GetLabels()[catalog.ManagedByLabel] != catalog.Manager {
			t.Errorf("%s: the label is missing", name)
		}
	}
}

// words are what a decision says beside its action.
func words(d Decision) string {
	var all []string
	if d.OptedIn {
		all = append(all, "opted in")
	}
	all = append(all, d.Customizations...)
	if d.PatchFault != nil {
		all = append(all, "fault")
	} else if d.Patched > 0 {
		all = append(all, fmt.Sprintf("of %d", d.Patched))
	}
	if d.Object != nil {
		all = append(all, fmt.Sprint("spec ", d.Object.Object["spec"]))
	}
	return strings.Join(all, " ")
}

// TestBuried: only what has the label is deleted (A50).
func TestBuried(t *testing.T) {
	grave := catalog.Tombstone{Path: "f", Object: parse(t, "{kind: X, metadata: {name: a}}")}
	for _, c := range []struct {
		live string
		want Action
	}{
		{"", Keep},
		{"{metadata: {labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}}", Delete},
		{"{metadata: {labels: {platform.kubevirt.io/managed-by: somebody}}}", Leave},
		{"{metadata: {}}", Leave},
		{"{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}}", Fail},
		{"{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}", Leave},
	} {
		var live *unstructured.Unstructured
		if c.live != "" {
			live = parse(t, c.live)
		}
		if d := Buried(grave, live); d.Action != c.want {
			t.Errorf("%s: %s, want %s", c.live, d.Action, c.want)
		}
	}
}
