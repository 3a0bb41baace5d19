package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/debug"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/program"
)

func handler(t *testing.T, fault error) http.Handler {
	t.Helper()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	c, err := catalog.Load(fstest.MapFS{
		"metadata.yaml": file(`assets:
- {name: a, path: active/a.yaml, phase: 1, install: always, component: A}
- {name: b, path: active/b.yaml.tpl, phase: 1, install: always, component: B}
- {name: c, path: active/c.yaml, phase: 1, install: opt-in, component: C, conditions: [{type: annotation, key: x}]}
- {name: d, path: active/d.yaml, phase: 1, install: always, component: D}
`),
		"active/a.yaml":        file("apiVersion: v1\nkind: A\nmetadata:\n  name: a\n"),
		"active/b.yaml.tpl":    file("apiVersion: v1\nkind: B\nmetadata:\n  name: b\nx: {{ .none }}\n"),
		"active/c.yaml":        file("apiVersion: v1\nkind: C\nmetadata:\n  name: c\n"),
		"active/d.yaml":        file("apiVersion: v1\nkind: D\nmetadata:\n  name: d\n"),
		"tombstones/t/t.yaml":  file("apiVersion: v1\nkind: T\nmetadata: {name: t, labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}\n"),
		"active/unused/x.yaml": file(""),
	})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := facts.Parse([]byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: vmlet-platform, namespace: vmlet, annotations: {
 platform.kubevirt.io/autopilot: "true", platform.kubevirt.io/disabled-resources: "[{kind: D, name: '*'}]"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return debug.Pages{Catalog: c, Look: program.Evaluator(c, objects), Facts: func(ctx context.Context) (facts.Facts, error) {
		f, err := objects.Facts(ctx, "vmlet")
		return f, errors.Join(err, fault)
	}}.Handler()
}

func TestPages(t *testing.T) {
	for _, c := range []struct {
		method, path string
		code         int
		has, hasNot  string
	}{
		{"GET", "/debug/render", 200, "# Asset: a\n# Path: active/a.yaml\n# Component: A\n# Status: INCLUDED\napiVersion: v1", "# Asset: c"},
		{"GET", "/debug/render", 200, "# Asset: b\n# Path: active/b.yaml.tpl\n# Component: B\n# Status: ERROR\n# Reason: ", "EXCLUDED"},
		{"GET", "/debug/render?show-excluded=true", 200, "# Status: EXCLUDED\n# Reason: \"Conditions not met: x\"\n---\n", ""},
		{"GET", "/debug/render?show-excluded=true", 200, "# Status: FILTERED", "kind: D"},
		{"GET", "/debug/render?format=json", 200, `"status": "INCLUDED"`, "# Asset"},
		{"GET", "/debug/render?format=status", 400, "choose yaml or json", ""},
		{"GET", "/debug/render/c", 200, "# Status: EXCLUDED", "# Asset: a"},
		{"GET", "/debug/render/none", 404, "there is no asset", ""},
		{"GET", "/debug/exclusions", 200, `"reason": "Root exclusion (disabled-resources annotation): D/*"`, `"asset": "a"`},
		{"GET", "/debug/tombstones", 200, `"path": "tombstones/t/t.yaml"`, ""},
		{"GET", "/debug/health", 200, "OK\n", ""},
		{"POST", "/debug/render", 405, "", "Asset"},
		{"DELETE", "/debug/tombstones", 405, "", "path"},
		{"GET", "/debug/none", 404, "", ""},
	} {
		w := httptest.NewRecorder()
		handler(t, nil).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
		}
		if body := w.Body.String(); !strings.Contains(body, c.has) {
			t.Errorf("%s: the page lacks %q:\n%s", c.path, c.has, body)
		} else if c.hasNot != "" && strings.Contains(body, c.hasNot) {
			t.Errorf("%s: the page has %q", c.path, c.hasNot)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s is no JSON", c.path)
		}
	}
	w := httptest.NewRecorder()
	handler(t, errors.New("no answer")).ServeHTTP(w, httptest.NewRequest("GET", "/debug/render", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("without an API server: %d, want 503", w.Code)
	}
}
