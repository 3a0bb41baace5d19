package controller

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/metrics"
)

const platform = "{apiVersion: v1, kind: ConfigMap, metadata: {name: vmlet-platform, namespace: web, annotations: {platform.kubevirt.io/autopilot: GATE}}}"

// trial is a controller that nothing runs, on an API server that keeps objects and can refuse.
type trial struct {
	*controller
	api    *fake.FakeDynamicClient
	events *events.FakeRecorder
	now    time.Time
}

// newTrial has an asset a, which is Service web/a, a tombstone for Secret web/old, and objects, as
// YAML: one of a kind, as the server knows no field selectors.
func newTrial(t *testing.T, gate string, objects ...string) *trial {
	t.Helper()
	var all []runtime.Object
	for _, text := range append(objects, strings.Replace(platform, "GATE", gate, 1), "{apiVersion: v1, kind: Namespace, metadata: {name: web}}") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	c, err := catalog.Load(fstest.MapFS{
		"metadata.yaml":          {Data: []byte("assets: [{name: a, path: active/a.yaml, phase: 1, install: always, component: Service}]")},
		"active/a.yaml":          {Data: []byte("apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: web\nspec: {type: ClusterIP}\n")},
		"tombstones/v1/old.yaml": {Data: []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: old, namespace: web, labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &trial{events: events.NewFakeRecorder(1000), now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
	x.api = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		facts.CRDs(): "CustomResourceDefinitionList", facts.Nodes(): "NodeList", facts.Namespaces(): "NamespaceList", facts.ConfigMaps(): "ConfigMapList",
		{Version: "v1", Resource: "services"}: "ServiceList",
	}, all...)
	x.controller = newController(t.Context(), Options{
		API: x.api, Catalog: c, Metrics: metrics.New(), Events: x.events, Namespace: "web",
		Now: func() time.Time { return x.now }, Log: slog.New(slog.DiscardHandler),
	})
	return x
}

// said are the events so far.
func (x *trial) said() (all string) {
	for len(x.events.Events) > 0 {
		all += <-x.events.Events + "\n"
	}
	return all
}

// TestRefusedCreation: an object that the API server refuses is no object that somebody else deletes
// (it has no dry run, as there is nothing to compare it with).
func TestRefusedCreation(t *testing.T) {
	x := newTrial(t, "'true'")
	x.api.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})
	for range 200 {
		if _, err := x.reconcile(t.Context(), "tombstone/0"); err != nil {
			t.Fatal(err)
		}
		if _, err := x.reconcile(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("%v, want that it is refused", err)
		}
		x.now = x.now.Add(time.Second)
	}
	if said := x.said(); strings.Contains(said, "Throttled") || strings.Contains(said, "ThrashingDetected") || !strings.Contains(said, "ApplyFailed") {
		t.Errorf("events: %s", said)
	}
}

// TestGateOfUnknownNames: what its author takes for an off switch deletes nothing.
func TestGateOfUnknownNames(t *testing.T) {
	old := "{apiVersion: v1, kind: Secret, metadata: {name: old, namespace: web, labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}}"
	for gate, deletes := range map[string]bool{"'off'": false, "'False'": false, "'no, never'": false, "'false'": false, "'no, a'": true, "'true'": true} {
		x := newTrial(t, gate, old)
		if _, err := x.reconcile(t.Context(), "tombstone/0"); err != nil {
			t.Fatal(err)
		}
		said := x.said()
		if strings.Contains(said, "TombstoneDeleted") != deletes {
			t.Errorf("gate %s: tombstones are deleted: %v, want %v", gate, !deletes, deletes)
		}
		if unknown := !strings.Contains(gate, "true") && !strings.Contains(gate, "false"); strings.Contains(said, "InvalidAnnotation") != unknown {
			t.Errorf("gate %s: events: %s", gate, said)
		}
	}
}

// TestTombstoneWithFinalizer: an object that is deleted and does not go is not gone.
func TestTombstoneWithFinalizer(t *testing.T) {
	x := newTrial(t, "'true'", `{apiVersion: v1, kind: Secret, metadata: {name: old, namespace: web, finalizers: [example.com/hold],
 deletionTimestamp: "2026-01-01T00:00:00Z", labels: {platform.kubevirt.io/managed-by: virt-platform-autopilot}}}`)
	if _, err := x.reconcile(t.Context(), "tombstone/0"); err == nil {
		t.Error("it is not tried again soon")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(x.Metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubevirt_autopilot_tombstone_status" && f.GetMetric()[0].GetGauge().GetValue() != -1 {
			t.Errorf("tombstone_status is %v, want -1", f.GetMetric()[0])
		}
	}
	if said := x.said(); !strings.Contains(said, "TombstoneFailed") || !strings.Contains(said, "example.com/hold") || strings.Contains(said, "TombstoneDeleted") {
		t.Errorf("events: %s", said)
	}
	for _, a := range x.api.Actions() {
		if a.GetVerb() == "delete" {
			t.Error("it is deleted once more")
		}
	}
}
