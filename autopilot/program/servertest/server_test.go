package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
)

// two are assets of a ConfigMap each, a and b.
func two() files {
	return files{
		"metadata.yaml": `assets:
- {name: a, path: active/a.yaml, phase: 1, install: always, component: ConfigMap, reconcile_order: 1}
- {name: b, group: more, path: active/b.yaml.tpl, phase: 1, install: always, component: ConfigMap, reconcile_order: 1}
`,
		"active/a.yaml":     configMap("a", "key: mine, other: mine"),
		"active/b.yaml.tpl": configMap("b", `key: {{ annotation "value" | default "none" | toJson }}`),
	}
}

func configMap(name, data string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: NS\ndata: {%s}\n", name, data)
}

func crd(group, kind, plural, scope string, versions ...string) map[string]any {
	var all []any
	for i, v := range versions {
		all = append(all, map[string]any{"name": v, "served": true, "storage": i == 0, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
	}
	return map[string]any{"spec": map[string]any{"group": group, "scope": scope, "versions": all,
		"names": map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "listKind": kind + "List"}}}
}

func (s *server) define(group, kind, plural, scope string, versions ...string) {
	s.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, crd(group, kind, plural, scope, versions...))
}

// TestAutopilot: the program itself, with a namespace and a lease for each test.
func TestAutopilot(t *testing.T) {
	s := start(t)
	for name, test := range map[string]func(*server, *testing.T){
		"gate": gate, "drift": drift, "patch": patch, "mask": mask, "unmanaged": unmanaged, "editwar": editWar, "deletewar": deleteWar, "replacewar": replaceWar,
		"crds": crds, "namespaces": namespaces, "tombstones": tombstones, "failures": failures, "replicas": replicas, "rest": atRest, "upgrade": upgrade, "outage": outage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(s, t)
		})
	}
}

// Off without the annotation; on for those that are listed; all of them; off again.
func gate(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	metrics, _ := a.run()
	a.create("v1", "ConfigMap", a.namespace, "vmlet-platform", nil)
	a.annotate("vmlet-platform", "autopilot", `"false"`)
	a.annotate("vmlet-platform", "autopilot", `"more, nothing"`)
	a.hasData("b", "key", "none")
	a.said("InvalidAnnotation", `"nothing"`)
	if a.configMap("a") != nil {
		t.Error("a is applied, and only the group of b is listed")
	}
	a.shows(metrics, -100, "compliance_status", "a")
	a.annotate("vmlet-platform", "autopilot", `"true"`)
	a.hasData("a", "key", "mine")
	a.shows(metrics, 1, "compliance_status", "ConfigMap", "a", a.namespace)
	a.annotate("vmlet-platform", "autopilot", "b")
	a.shows(metrics, -100, "compliance_status", "a")
	a.delete("v1", "ConfigMap", "a")
	a.annotate("vmlet-platform", "value", "new")
	a.hasData("b", "key", "new")
	if a.configMap("a") != nil {
		t.Error("a is applied, and is no longer listed")
	}
	a.annotate("vmlet-platform", "autopilot", "null")
	a.shows(metrics, -100, "compliance_status", "b")
	a.merge("ConfigMap", "b", "data: {key: theirs}")
	a.annotate("vmlet-platform", "autopilot", "a")
	a.hasData("a", "key", "mine")
	a.hasData("b", "key", "theirs")
}

// What others change is put back, and what they add stays.
func drift(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.create("v1", "ConfigMap", a.namespace, "a", map[string]any{"data": map[string]any{"key": "old", "theirs": "yes"}})
	a.anchored(`"true"`)
	metrics, _ := a.run()
	a.hasData("a", "key", "mine")
	for _, patch := range []string{"data: {key: theirs}", "metadata: {labels: {platform.kubevirt.io/managed-by: null}}"} {
		a.merge("ConfigMap", "a", patch)
		a.until("put back", func() error {
			if o := a.configMap("a"); a.data("a", "key") != "mine" || o.GetLabels()["platform.kubevirt.io/managed-by"] != "virt-platform-autopilot" {
				return fmt.Errorf("it is %v", o.Object)
			}
			return nil
		})
	}
	a.hasData("a", "theirs", "yes")
	a.said("DriftDetected", "ConfigMap/"+a.namespace+"/a", "/data/key")
	a.said("DriftCorrected", "ConfigMap/"+a.namespace+"/a")
	a.said("AssetApplied", "b")
	a.shows(metrics, 1, "compliance_status", "a")
	a.delete("v1", "ConfigMap", "a")
	a.hasData("a", "key", "mine")
}

// A patch changes what is applied, all or nothing, and never which object.
func patch(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	metrics, _ := a.run()
	a.hasData("a", "key", "mine")
	a.annotate("a", "patch", `'[{"op": "replace", "path": "/data/key", "value": "patched"}, {"op": "add", "path": "/data/more", "value": "1"}]'`)
	a.hasData("a", "more", "1")
	a.hasData("a", "key", "patched")
	a.said("PatchApplied", "a has a patch of 2 operations")
	a.shows(metrics, 1, "customization_info", "a", "patch")
	a.merge("ConfigMap", "a", "data: {key: theirs}")
	a.hasData("a", "key", "patched")
	a.annotate("a", "patch", `'[{"op": "replace", "path": "/data/key", "value": "no"}, {"op": "replace", "path": "", "value": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "NS"}}}]'`)
	a.said("InvalidPatch", "forbidden")
	a.hasData("a", "key", "mine")
	a.hasData("a", "more", "")
	a.annotate("a", "patch", "null")
	a.shows(metrics, -100, "customization_info", "a", "patch")
	if a.configMap("c") != nil {
		t.Error("a patch has made another object")
	}
}

// owned is what a field manager owns of a ConfigMap's data.
func (a *autopilot) owned(name, manager string) string {
	for _, m := range a.configMap(name).GetManagedFields() {
		if m.Manager == manager && m.Operation == "Apply" {
			var set struct {
				Data json.RawMessage `json:"f:data"`
			}
			if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &set); err != nil {
				a.t.Fatal(err)
			}
			return string(set.Data)
		}
	}
	return "nothing"
}

// A masked field keeps its value, is not owned, is the user's, and is taken back.
func mask(s *server, t *testing.T) {
	f := two()
	f["metadata.yaml"] += "- {name: s, path: active/s.yaml, phase: 1, install: always, component: Service, reconcile_order: 1}\n"
	f["active/s.yaml"] = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  namespace: NS\nspec: {selector: {x: a, z: b}, ports: [{port: 80}]}\n"
	a := s.autopilot(t, f)
	a.anchored(`"true"`)
	metrics, _ := a.run()
	a.hasData("a", "key", "mine")
	for _, step := range []struct{ mask, owned, released string }{
		{"/data/key", `{"f:other":{}}`, `{"f:key":{}}`},
		{`"/data/key,/data/other"`, "{}", `{"f:key":{},"f:other":{}}`},
		{"null", `{"f:key":{},"f:other":{}}`, "nothing"}, // nobody has changed it: it is taken back
		{"/data/key", `{"f:other":{}}`, `{"f:key":{}}`},
	} {
		a.annotate("a", "ignore-fields", step.mask)
		a.until("fields that are owned with the mask "+step.mask, func() error {
			if got, released := a.owned("a", "virt-platform-autopilot"), a.owned("a", "vmlet-autopilot-released"); got != step.owned || released != step.released {
				return fmt.Errorf("%s, released %s", got, released)
			}
			return nil
		})
		a.hasData("a", "key", "mine")
		a.hasData("a", "other", "mine")
	}
	a.merge("ConfigMap", "a", "data: {key: theirs, other: theirs}")
	a.hasData("a", "other", "mine")
	a.hasData("a", "key", "theirs")
	a.shows(metrics, 1, "customization_info", "a", "ignore")
	a.shows(metrics, 1, "compliance_status", "a")
	a.annotate("a", "ignore-fields", "data")
	a.said("InvalidIgnoreFields", "does not begin with /")
	a.shows(metrics, 0, "compliance_status", "a")
	a.hasData("a", "key", "theirs")
	a.annotate("a", "ignore-fields", "null")
	a.hasData("a", "key", "mine")
	// To the API server a selector is one value: what is masked of it is applied as it is.
	a.merge("Service", "s", "{metadata: {annotations: {platform.kubevirt.io/ignore-fields: /spec/selector/x}}, spec: {selector: {x: theirs, z: theirs}}}")
	a.until("a part of a selector is left, and the other put back", func() error {
		got, _, _ := unstructured.NestedStringMap(a.get("v1", "Service", "s").Object, "spec", "selector")
		if got["x"] != "theirs" || got["z"] != "b" {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
	a.shows(metrics, 1, "compliance_status", "Service")
	a.merge("Service", "s", "metadata: {annotations: {platform.kubevirt.io/ignore-fields: /spec/selector}}")
	a.shows(metrics, 1, "compliance_status", "Service")
	if got, _, _ := unstructured.NestedStringMap(a.get("v1", "Service", "s").Object, "spec", "selector"); len(got) != 2 {
		t.Errorf("the selector is %v, want x and z", got)
	}
}

func unmanaged(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	metrics, _ := a.run()
	a.hasData("a", "key", "mine")
	a.annotate("a", "mode", "unmanaged")
	a.shows(metrics, 1, "customization_info", "a", "unmanaged")
	a.shows(metrics, -100, "compliance_status", "a")
	a.said("UnmanagedMode", "a is left alone")
	a.merge("ConfigMap", "a", "data: {key: theirs}")
	// An exclusion with a wildcard: neither put back nor made again.
	a.annotate("vmlet-platform", "disabled-resources", `"[{kind: ConfigMap, name: 'b*', namespace: '*'}, {kind: Nothing}]"`)
	a.said("InvalidAnnotation", "kind and name are required")
	a.shows(metrics, -100, "compliance_status", "b")
	a.delete("v1", "ConfigMap", "b")
	a.annotate("a", "mode", "null")
	a.hasData("a", "key", "mine")
	if a.configMap("b") != nil {
		t.Error("b is made again, and is disabled")
	}
	a.annotate("vmlet-platform", "disabled-resources", "null")
	a.hasData("b", "key", "none")
}

// rival does something whenever an object is as the autopilot wants it, or paused, until the test or
// stop ends it.
func (a *autopilot) rival(name string, against func(*unstructured.Unstructured)) (stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = until(func() error {
				if ctx.Err() != nil {
					return nil
				}
				o, err := a.api.Resource(facts.ConfigMaps()).Namespace(a.namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if value, _, _ := unstructured.NestedString(o.Object, "data", "key"); value == "mine" || o.GetAnnotations()["platform.kubevirt.io/reconcile-paused"] != "" {
					against(o)
				}
				return errors.New("it goes on")
			})
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// An edit war is paused, survives the autopilot's end, and goes on when somebody says so.
func editWar(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	metrics, stop := a.run()
	peace := a.rival("a", func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, "theirs", "data", "key")
		_, _ = a.api.Resource(facts.ConfigMaps()).Namespace(a.namespace).Update(t.Context(), o, metav1.UpdateOptions{FieldManager: "rival"})
	})
	a.until("it is paused", func() error {
		if o := a.configMap("a"); o == nil || o.GetAnnotations()["platform.kubevirt.io/reconcile-paused"] != "true" {
			return errors.New("it is not")
		}
		return nil
	})
	a.shows(metrics, 1, "paused_resources", "a")
	a.shows(metrics, 0, "compliance_status", "a")
	a.shows(metrics, 1, "thrashing_total", "a")
	a.said("Throttled", "/a was applied 10 times")
	a.said("ThrashingDetected", "reconcile-paused", "unmanaged")
	if n := metric(t, metrics, "throttle_delayed_total", "a"); n < 3 {
		t.Errorf("throttle_delayed_total is %v, want 3 or more", n)
	}
	a.hasData("b", "key", "none") // the others go on
	peace()
	stop()
	metrics, _ = a.run()
	a.shows(metrics, 1, "paused_resources", "a")
	a.hasData("a", "key", "theirs")
	a.annotate("a", "reconcile-paused", "null")
	a.hasData("a", "key", "mine")
	a.shows(metrics, 0, "paused_resources", "a")
	a.shows(metrics, 1, "compliance_status", "a")
}

// An object that is deleted again and again is paused on the platform object.
func deleteWar(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	metrics, _ := a.run()
	peace := a.rival("a", func(*unstructured.Unstructured) {
		_ = a.api.Resource(facts.ConfigMaps()).Namespace(a.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{})
	})
	a.until("it is paused", func() error {
		if got := a.configMap("vmlet-platform").GetAnnotations()["platform.kubevirt.io/paused-resources"]; got != "ConfigMap/"+a.namespace+"/a" {
			return fmt.Errorf("the annotation is %q", got)
		}
		return nil
	})
	peace()
	a.shows(metrics, 1, "paused_resources", "a")
	a.annotate("vmlet-platform", "paused-resources", "null")
	a.hasData("a", "key", "mine")
	a.shows(metrics, 0, "paused_resources", "a")
	a.shows(metrics, 1, "thrashing_total", "a")
}

// An opponent who replaces the whole object does not end the pause.
func replaceWar(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	metrics, _ := a.run()
	peace := a.rival("a", func(o *unstructured.Unstructured) {
		o.SetAnnotations(nil)
		_ = unstructured.SetNestedField(o.Object, "theirs", "data", "key")
		_, _ = a.api.Resource(facts.ConfigMaps()).Namespace(a.namespace).Update(t.Context(), o, metav1.UpdateOptions{FieldManager: "rival"})
	})
	a.until("it is paused", func() error {
		if got := a.configMap("vmlet-platform").GetAnnotations()["platform.kubevirt.io/paused-resources"]; got != "ConfigMap/"+a.namespace+"/a" {
			return fmt.Errorf("the annotation is %q", got)
		}
		return nil
	})
	peace()
	a.shows(metrics, 1, "thrashing_total", "a")
	a.annotate("vmlet-platform", "paused-resources", "null")
	a.hasData("a", "key", "mine")
	a.shows(metrics, 0, "paused_resources", "a")
}

// Kinds come and go while the autopilot runs.
func crds(s *server, t *testing.T) {
	f := two()
	f["metadata.yaml"] += `- {name: w, path: active/w.yaml, gate_crd: gates.crds.example.com, phase: 1, install: always, component: Widget, reconcile_order: 1}
`
	f["active/w.yaml"] = "apiVersion: crds.example.com/v1\nkind: Widget\nmetadata:\n  name: w\n  namespace: NS\nspec: {size: 3}\n"
	a := s.autopilot(t, f)
	a.anchored(`"a, b, w"`)
	metrics, _ := a.run()
	a.shows(metrics, 1, "missing_dependency", "Widget", "crds.example.com")
	a.said("CRDMissing", "widgets.crds.example.com")
	a.hasData("a", "key", "mine")
	widget := func(want string) {
		t.Helper()
		a.until("the widget is "+want, func() error {
			o, err := a.api.Resource(resource("crds.example.com/v1", "Widget")).Namespace(a.namespace).Get(t.Context(), "w", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := fmt.Sprint(o.Object["spec"]); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	for range 2 {
		s.define("crds.example.com", "Widget", "widgets", "Namespaced", "v1")
		a.shows(metrics, 0, "missing_dependency", "Widget")
		a.said("CRDMissing", "gates.crds.example.com")
		s.define("crds.example.com", "Gate", "gates", "Namespaced", "v1")
		widget("map[size:3]")
		_, err := a.api.Resource(resource("crds.example.com/v1", "Widget")).Namespace(a.namespace).Patch(t.Context(), "w", "application/merge-patch+json", []byte(`{"spec":{"size":4}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		widget("map[size:3]")
		a.shows(metrics, 1, "compliance_status", "Widget")
		for _, name := range []string{"widgets", "gates"} {
			a.undefine(name + ".crds.example.com")
		}
		a.shows(metrics, -100, "compliance_status", "Widget")
		a.shows(metrics, 1, "missing_dependency", "Widget")
	}
}

func (a *autopilot) undefine(name string) {
	a.t.Helper()
	of := a.api.Resource(facts.CRDs())
	if err := of.Delete(a.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		a.t.Fatal(err)
	}
	a.until("the kind is gone", func() error {
		_, err := of.Get(a.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is not: %w", err)
	})
}

// A namespace that is not there is no failure, and its object is applied when it comes.
func namespaces(s *server, t *testing.T) {
	f := two()
	f["active/a.yaml"] = strings.Replace(f["active/a.yaml"], "namespace: NS", "namespace: NS-later", 1)
	a := s.autopilot(t, f)
	a.anchored(`"true"`)
	metrics, _ := a.run()
	a.hasData("b", "key", "none")
	a.until("it was looked at", func() error {
		if n := metric(t, metrics, "asset_reconcile_total", "a"); n < 1 {
			return fmt.Errorf("%v times", n)
		}
		return nil
	})
	a.create("v1", "Namespace", "", a.namespace+"-later", nil)
	a.shows(metrics, 1, "compliance_status", "a", a.namespace+"-later")
	if n := metric(t, metrics, "asset_reconcile_errors_total", "a"); n > 0 {
		t.Errorf("%v errors, want none", n)
	}
}

// Obsolete objects go, unless they are somebody else's.
func tombstones(s *server, t *testing.T) {
	f := two()
	grave := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: NS, labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}\n"
	}
	f["tombstones/v1/old.yaml"] = grave("old") + "---\n" + grave("theirs")
	f["tombstones/v1/more.yaml"] = grave("never") + "---\napiVersion: gone.example.com/v1\nkind: Thing\nmetadata: {name: x, labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}\n"
	a := s.autopilot(t, f)
	label := map[string]any{"platform.kubevirt.io/managed-by": "virt-platform-autopilot"}
	a.create("v1", "ConfigMap", a.namespace, "old", map[string]any{"metadata": map[string]any{"labels": label}})
	a.create("v1", "ConfigMap", a.namespace, "theirs", nil)
	metrics, _ := a.run()
	a.anchored("a") // tombstones go whatever is listed
	a.until("old is gone", func() error {
		if a.configMap("old") != nil {
			return errors.New("it is there")
		}
		return nil
	})
	a.said("TombstoneDeleted", "/old", "tombstones/v1/old.yaml")
	a.said("TombstoneSkipped", "/theirs")
	a.shows(metrics, 0, "tombstone_status", "old")
	a.shows(metrics, -2, "tombstone_status", "theirs")
	a.shows(metrics, 0, "tombstone_status", "Thing", "x")
	a.shows(metrics, 0, "tombstone_status", "never")
	if a.configMap("theirs") == nil {
		t.Error("an object without the label was deleted")
	}
	a.annotate("vmlet-platform", "autopilot", "null")
	a.shows(metrics, -100, "tombstone_status", "theirs")
}

// Assets that fail, the golden configuration among them, hold up no other.
func failures(s *server, t *testing.T) {
	f := two()
	f["metadata.yaml"] += `- {name: golden, path: active/golden.yaml, phase: 0, install: always, component: ConfigMap, reconcile_order: 0}
- {name: broken, path: active/broken.yaml.tpl, phase: 1, install: always, component: ConfigMap, reconcile_order: 0}
- {name: undeclared, path: active/undeclared.yaml.tpl, phase: 1, install: always, component: ConfigMap, reconcile_order: 0}
`
	f["active/golden.yaml"] = strings.Replace(configMap("golden", "key: mine"), "data: {key: mine}", "data: {key: {no: string}}", 1)
	f["active/broken.yaml.tpl"] = configMap("broken", "key: {{ .Platform.Object.nothing }}")
	f["active/undeclared.yaml.tpl"] = configMap("undeclared", `key: {{ lookup "v1" "Secret" "kube-system" "x" | toJson }}`)
	a := s.autopilot(t, f)
	a.anchored(`"true"`)
	var goldenTried, early atomic.Bool
	metrics, _ := a.runAs(spied(s.config, "configmaps", func(object string) {
		if object == "golden" {
			time.Sleep(time.Second) // room for others to come before it
			goldenTried.Store(true)
		} else if !goldenTried.Load() {
			early.Store(true)
		}
	}))
	a.hasData("a", "key", "mine")
	a.hasData("b", "key", "none")
	if early.Load() {
		t.Error("an asset was applied before the golden configuration was tried")
	}
	a.shows(metrics, 1, "render_failed", "broken")
	a.shows(metrics, 1, "render_failed", "undeclared")
	a.shows(metrics, 0, "compliance_status", "golden")
	a.said("RenderFailed", "undeclared", "lacks v1 Secret")
	a.said("ApplyFailed", "golden")
}

// Of two replicas one works. When it ends the other goes on.
func replicas(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	first, stop := a.run()
	a.shows(first, 1, "compliance_status", "a")
	second, _ := a.run()
	a.merge("ConfigMap", "a", "data: {key: theirs}")
	a.hasData("a", "key", "mine")
	if got := metric(t, second, "compliance_status", "a"); got != -100 {
		t.Errorf("the replica that waits says %v of a", got)
	}
	stop()
	a.shows(second, 1, "compliance_status", "a")
	a.merge("ConfigMap", "a", "data: {key: theirs}")
	a.hasData("a", "key", "mine")
	if got := metric(t, second, "asset_apply_total", "b"); got > 0 {
		t.Errorf("b was applied %v times by the second, and was as it is to be", got)
	}
}

// What another version of the autopilot applied was changed by nobody else.
func upgrade(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	metrics, stop := a.run()
	a.shows(metrics, 1, "compliance_status", "a")
	stop()
	a.files["active/a.yaml"].Data = []byte(strings.ReplaceAll(configMap("a", "key: new, more: new"), "NS", a.namespace))
	var err error
	if a.catalog, err = catalog.Load(a.files); err != nil {
		t.Fatal(err)
	}
	metrics, stop = a.run()
	a.hasData("a", "more", "new")
	a.shows(metrics, 1, "compliance_status", "a")
	if n := metric(t, metrics, "drift_detected_total", "a"); n > 0 {
		t.Errorf("%v times a was changed by somebody else, want never", n)
	}
	stop()
	a.merge("ConfigMap", "a", "data: {key: theirs}")
	metrics, _ = a.run()
	a.hasData("a", "key", "new")
	a.said("DriftDetected", "/data/key")
	a.shows(metrics, 1, "drift_detected_total", "a")
}

// Nothing is written where nothing has changed, however often it is looked at.
func atRest(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	var patches atomic.Int64 // of a, dry runs among them
	metrics, stop := a.runAs(spied(s.config, "configmaps", func(object string) {
		if object == "a" {
			patches.Add(1)
		}
	}))
	a.shows(metrics, 1, "compliance_status", "a")
	a.shows(metrics, 1, "compliance_status", "b")
	asked := patches.Load()
	before := a.configMap("a").GetResourceVersion()
	looks := metric(t, metrics, "asset_reconcile_total", "a")
	a.annotate("vmlet-platform", "value", "new")
	a.hasData("b", "key", "new")
	a.until("it is looked at again", func() error {
		if n := metric(t, metrics, "asset_reconcile_total", "a"); n <= looks {
			return fmt.Errorf("%v times", n)
		}
		return nil
	})
	if n := patches.Load(); n != asked {
		t.Errorf("%d patches of an object that has not changed", n-asked)
	}
	stop()
	metrics, _ = a.run()
	a.shows(metrics, 1, "compliance_status", "a")
	if after := a.configMap("a").GetResourceVersion(); after != before {
		t.Errorf("a was written: version %s, before %s", after, before)
	}
	if n := metric(t, metrics, "asset_apply_total", "a"); n > 0 {
		t.Errorf("a was applied %v times", n)
	}
}

// The API server goes away, and comes back: what has changed meanwhile is put back.
func outage(s *server, t *testing.T) {
	a := s.autopilot(t, two())
	a.anchored(`"true"`)
	line := listen(t, strings.Trim(strings.TrimPrefix(s.config.Host, "https:"), "/"))
	config := rest.CopyConfig(s.config)
	config.Host = "https://" + line.Addr().String()
	metrics, _ := a.runAs(config)
	a.shows(metrics, 1, "compliance_status", "a")
	line.cut(true)
	a.merge("ConfigMap", "a", "data: {key: theirs}")
	a.merge("ConfigMap", "b", "data: {key: theirs}")
	line.cut(false)
	a.hasData("a", "key", "mine")
	a.hasData("b", "key", "none")
	a.shows(metrics, 1, "compliance_status", "a")
}
